// Makes the tables of a sheet sortable. The page is whole without it.
for (const table of document.querySelectorAll('table')) {
  const head = table.tHead.rows[0], body = table.tBodies[0];
  const columns = [...head.cells].map((cell) => [cell.textContent, cell.classList.contains('n')]);
  const order = { by: -1, descending: false };
  const keyOf = (row) => {
    const cell = row.cells[order.by];
    return columns[order.by][1] ? Number(cell.dataset.value ?? -Infinity) : cell.textContent;
  };
  const draw = () => {
    sortHeads(head, columns, order, draw);
    if (order.by < 0) return;
    // A row that failed stays below the others: its figures are of what it did before.
    const rows = [...body.rows].sort((a, b) =>
      a.classList.contains('failed') - b.classList.contains('failed') || inOrder(order, keyOf(a), keyOf(b)));
    body.replaceChildren(...rows);
  };
  draw();
}
