// A program in front of which no library can be loaded.
int main(void) { return 0; }
