/* The C interface of an installed Headroom: take_blocks DEVICE. */
#include <headroom_strategy.h>
#include <stdio.h>

int main(int argc, char** argv) {
  headroom_allocator* allocator = NULL;
  void* block = NULL;
  if (argc != 2) return 2;
  if (headroom_open("caching", argv[1], &allocator) != HEADROOM_OK ||
      headroom_allocate(allocator, 1 << 20, NULL, &block) != HEADROOM_OK ||
      headroom_deallocate(allocator, block, NULL) != HEADROOM_OK) {
    fprintf(stderr, "%s\n", headroom_error());
    return 1;
  }
  printf("libheadroom %s: trim released %d MiB\n", headroom_version(), (int)(headroom_trim(allocator) >> 20));
  headroom_close(allocator);
  return 0;
}
