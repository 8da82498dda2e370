// Numbers for people: few digits, a real minus sign, thousands apart.
function pretty(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size >= 1e6 || size < 1e-4) {
    const [mantissa, power] = value.toExponential(Math.max(digits - 2, 0)).split("e");
    text = `${mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa}e${Number(power)}`;
  } else {
    const whole = Math.max(Math.ceil(Math.log10(size)), 1);
    text = Number(value.toFixed(Math.min(Math.max(digits - whole, 0), 10))).toLocaleString("en", {
      maximumFractionDigits: 10,
    });
    // Small numbers keep their leading digits, large ones all that are whole.
    if (size < 1) text = String(Number(value.toPrecision(digits)));
  }
  return text.replace("-", "−").replace("e-", "e−");
}
const percent = (share) => (share === null ? "none" : share < 0.0005 && share > 0 ? "< 0.1 %" : `${pretty(100 * share, 3)} %`);
const count = (number) => number.toLocaleString("en");

// Points as they were packed: 16-bit places within each column's range, 65,535 for beyond it.
function unpack(packed, rows) {
  const text = atob(packed);
  const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const places = new Float32Array(bytes.length / 2);
  for (let i = 0; i < places.length; i++) {
    const place = view.getUint16(2 * i, true);
    places[i] = place === 65535 ? NaN : place / 65533;
  }
  return (column) => places.subarray(column * rows, (column + 1) * rows);
}
