// Modules do not run from file: addresses, so that a script of another kind says what to do.
if (location.protocol === "file:") {
  const folder = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "");
  document.getElementById("error").textContent =
    "This page needs a file server, because browsers do not let pages opened as files load graphs.\n"
    + `Run: python -m http.server --directory "${folder}" 8000\nThen open http://localhost:8000`;
  for (const id of ["status", "summary"]) {
    const shown = document.getElementById(id);
    if (shown) shown.textContent = "";
  }
}
