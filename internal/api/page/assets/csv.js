// Files of comma-separated values (RFC 4180).

// csv writes rows of values.
export function csv(rows) {
  return rows.map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");
}

// cell quotes a value where it must. Text that a spreadsheet would run as a formula gets an apostrophe: clients and
// users choose some of it.
function cell(value) {
  let text = String(value ?? "");
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// download hands a file to the user.
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const a = document.createElement("a");
  Object.assign(a, { href: url, download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
