// Columns that a click sorts, for every table of a page.
// `columns` are [name, is a number]; `order` is {by, descending} and changes before `changed` is called.
function sortHeads(row, columns, order, changed) {
  row.replaceChildren(...columns.map(([name, isNumber], i) => {
    const head = document.createElement('th'), button = document.createElement('button');
    head.scope = 'col';
    head.className = isNumber ? 'n' : '';
    head.setAttribute('aria-sort', i !== order.by ? 'none' : order.descending ? 'descending' : 'ascending');
    button.textContent = name + (i === order.by ? (order.descending ? ' ↓' : ' ↑') : '');
    button.type = 'button';
    button.addEventListener('click', () => {
      order.descending = i === order.by ? !order.descending : isNumber;
      order.by = i;
      changed();
    });
    head.append(button);
    return head;
  }));
}
const inOrder = (order, a, b) => {
  const way = typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b));
  return order.descending ? -way : way;
};
