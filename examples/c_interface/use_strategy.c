/* A memory strategy of Headroom in a C program, twice: over the program's own memory, and over a simulated
 * GPU. cc use_strategy.c -lheadroom && ./a.out */
#include <headroom_strategy.h>
#include <stdio.h>
#include <stdlib.h>

/* Memory of our own: the C library's, up to a capacity. A GPU program calls its driver here. */
typedef struct {
  int64_t free_bytes;
} own_memory;

static void* reserve(void* context, int64_t bytes) {
  own_memory* memory = context;
  if (bytes > memory->free_bytes) return NULL;
  void* pointer = aligned_alloc(256, ((size_t)bytes + 255) / 256 * 256);
  if (pointer != NULL) memory->free_bytes -= bytes;
  return pointer;
}

static void unreserve(void* context, void* pointer, int64_t bytes) {
  own_memory* memory = context;
  memory->free_bytes += bytes;
  free(pointer);
}

static int64_t reservable_bytes(void* context) {
  const own_memory* memory = context;
  return memory->free_bytes;
}

static void stop_unless(headroom_status status) {
  if (status == HEADROOM_OK) return;
  fprintf(stderr, "%s\n", headroom_error());
  exit(status);
}

/* Takes blocks of 1, 2, ..., 8 MiB and frees every other one; then the next rounds fit into the holes. */
static void work(headroom_allocator* allocator, const char* where) {
  for (int round = 0; round < 3; ++round) {
    void* blocks[8];
    for (int i = 0; i < 8; ++i) {
      stop_unless(headroom_allocate(allocator, (int64_t)(i + 1) << 20, NULL, &blocks[i]));
    }
    for (int i = 0; i < 8; i += 2) stop_unless(headroom_deallocate(allocator, blocks[i], NULL));
    for (int i = 1; i < 8; i += 2) stop_unless(headroom_deallocate(allocator, blocks[i], NULL));
  }
  headroom_counts counts;
  stop_unless(headroom_count(allocator, &counts, sizeof counts));
  printf("%s: %d allocations, peak %d MiB allocated, %d MiB reserved\n", where, (int)counts.allocations,
         (int)(counts.allocated_peak_bytes >> 20), (int)(counts.reserved_peak_bytes >> 20));
}

int main(void) {
  headroom_allocator* allocator = NULL;
  own_memory memory = {(int64_t)256 << 20};
  const headroom_driver driver = {&memory, reserve, unreserve, reservable_bytes, NULL};
  stop_unless(headroom_open_on("pool+limit=128MiB", &driver, &allocator));
  work(allocator, "own memory");

  /* No room is a status, and the message says who holds what. */
  void* block = NULL;
  if (headroom_allocate(allocator, (int64_t)1 << 30, NULL, &block) == HEADROOM_OUT_OF_MEMORY) {
    printf("%s\n", headroom_error());
  }
  headroom_close(allocator);
  printf("%d MiB of our own memory are free again\n", (int)(memory.free_bytes >> 20));

  stop_unless(headroom_open("mapped", "sim:rtx-3090", &allocator));
  work(allocator, "simulated GPU");
  headroom_close(allocator);
  return 0;
}
