// Shows values under the pointer, and hides curves by their names.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const chart = document.getElementById("chart");
const svg = chart.querySelector("svg");
const [hint, rule] = [document.getElementById("hint"), document.getElementById("rule")];
const [left, top_, width, height] = data.plot;
const hidden = new Set();

// The last point at or before a moment; nothing before the first and after the last.
function valueAt(points, seconds) {
  if (points.length === 0 || seconds < points[0][0] || seconds > points[points.length - 1][0] + data.step) return null;
  let [low, high] = [0, points.length];
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= seconds) low = middle;
    else high = middle;
  }
  return points[low][1];
}

chart.addEventListener("pointermove", (event) => {
  const box = svg.getBoundingClientRect();
  const scale = box.width / svg.viewBox.baseVal.width;
  const share = ((event.clientX - box.left) / scale - left) / width;
  const y = (event.clientY - box.top) / scale;
  const inside = share >= 0 && share <= 1 && y >= top_ && y <= top_ + height;
  hint.style.display = rule.style.display = inside ? "block" : "none";
  if (!inside) return;
  const seconds = data.from + share * (data.to - data.from);
  const lines = [seconds.toFixed(2) + " s"];
  data.series.forEach((series, number) => {
    const value = hidden.has(number) ? null : valueAt(series.points, seconds);
    if (value !== null) lines.push(value.toFixed(1) + " MiB  " + series.name);
  });
  hint.textContent = lines.join("\n");
  const x = event.clientX - box.left;
  rule.style.left = x + "px";
  rule.style.top = top_ * scale + "px";
  rule.style.height = height * scale + "px";
  hint.style.top = event.clientY - box.top + 12 + "px";
  hint.style.left = Math.max(0, x + 14 + hint.offsetWidth > box.width ? x - hint.offsetWidth - 14 : x + 14) + "px";
});
chart.addEventListener("pointerleave", () => {
  hint.style.display = rule.style.display = "none";
});
svg.addEventListener("click", (event) => {
  const label = event.target.closest("text[data-series]");
  if (!label) return;
  const number = Number(label.dataset.series);
  const off = !hidden.delete(number);
  if (off) hidden.add(number);
  label.classList.toggle("off", off);
  const parts = svg.querySelectorAll('polyline[data-series="' + number + '"]' + (number === 0 ? ", .area" : ""));
  for (const part of parts) part.style.display = off ? "none" : "";
});
