// Zooms to the box that is clicked, back at a click on a caller or by Escape; paints the boxes whose names have what is searched.
const WIDTH = 1200, LETTER = 6.6, NEAR = 0.01;
const search = document.getElementById("search");
const boxes = [...document.getElementById("graph").children].map(element => {
  const rect = element.querySelector("rect"), number = name => Number(rect.getAttribute(name));
  const title = element.querySelector("title").textContent;
  const name = title.slice(0, title.lastIndexOf(" ("));
  const box = { element, rect, name, fill: rect.getAttribute("fill"), x: number("x"), y: number("y"), width: number("width") };
  element.addEventListener("click", () => zoom(box));
  return box;
});

// The box of all, which is as wide as the picture.
const all = boxes[0];

function zoom(to) {
  const scale = WIDTH / to.width, end = to.x + to.width;
  for (const box of boxes) {
    const boxEnd = box.x + box.width;
    const holds = box.y >= to.y && box.x <= to.x + NEAR && boxEnd >= end - NEAR;
    const within = box.y < to.y && box.x >= to.x - NEAR && boxEnd <= end + NEAR;
    box.element.style.display = holds || within ? "" : "none";
    if (holds) put(box, 0, WIDTH);
    if (within) put(box, (box.x - to.x) * scale, box.width * scale);
  }
}

function put(box, x, width) {
  box.rect.setAttribute("x", x);
  box.rect.setAttribute("width", width);
  const letters = Math.floor((width - 4) / LETTER), name = [...box.name];
  let text = box.element.querySelector("text");
  if (!text) {
    text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    text.setAttribute("y", box.y + 12);
    box.element.append(text);
  }
  text.setAttribute("x", x + 2);
  text.textContent = letters < 3 ? "" : name.length <= letters ? box.name : name.slice(0, letters - 2).join("") + "..";
}

// The share of the width that boxes have together which may stand above each other.
function share(found) {
  let end = 0, sum = 0;
  for (const box of found.sort((a, b) => a.x - b.x || b.width - a.width)) {
    sum += Math.max(0, box.x + box.width - Math.max(end, box.x));
    end = Math.max(end, box.x + box.width);
  }
  return 100 * sum / WIDTH;
}

function find(wanted) {
  const found = boxes.filter(box => wanted && box.name.toLowerCase().includes(wanted.toLowerCase()));
  boxes.forEach(box => box.rect.setAttribute("fill", box.fill));
  found.forEach(box => box.rect.setAttribute("fill", "#b040e0"));
  search.textContent = wanted ? `${wanted}: ${share(found).toFixed(2)} %` : "search";
}

search.addEventListener("click", () => find(prompt("Part of a name (nothing: as before)") ?? ""));
document.addEventListener("keydown", event => { if (event.key === "Escape") zoom(all); });
