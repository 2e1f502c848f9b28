// Draws the figures of a report, in the colours of the reader's scheme.
const scheme = matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const color = getComputedStyle(document.body).color;
  for (const place of document.querySelectorAll("[data-figure]")) {
    const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    figure.layout.font = { ...figure.layout.font, color };
    const config = { displaylogo: false, responsive: true, toImageButtonOptions: { format: "svg", filename: place.id } };
    Plotly.purge(place);
    place.replaceChildren();
    Plotly.newPlot(place, figure.data, figure.layout, config);
  }
}
draw();
scheme.addEventListener("change", draw);
