// What the moving figures share: drawSvg adds an element of SVG to its parent, and returns it.
window.drawSvg = (parent, name, attributes, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.textContent = text;
  parent.append(element);
  return element;
};
