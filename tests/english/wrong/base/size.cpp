// Sizes of the test of tests/english. Right.

// What a size is.
int size();

// Returns the size behind the last
// block.
int next_size();

// Returns a page.
int page();  // Of memory; a comment beside code is not counted.
