"""Front ends that let code written for other profilers run on our engine unchanged."""
