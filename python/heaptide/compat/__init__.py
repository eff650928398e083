"""Front ends that let code written for other profilers run unchanged on Heaptide's engine."""
