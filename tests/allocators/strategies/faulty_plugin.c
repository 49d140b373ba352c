/* A plugin that breaks the contract of strategies in the way that its options name: "fault=NAME". Without a
 * fault it hands out a pool from its lower end and takes nothing back. */
#include <headroom_strategy.h>
#include <stdlib.h>
#include <string.h>

enum { kPoolBytes = 1 << 20 };

typedef struct {
  const headroom_driver* driver;
  char* pool;
  int64_t used;
  char fault[64];
} faulty_strategy;

static int has(const faulty_strategy* self, const char* fault) {
  return strcmp(self->fault, fault) == 0;
}

static void* create(const headroom_driver* driver, const char* options, char* error, size_t error_size) {
  const char* fault = strncmp(options, "fault=", 6) == 0 ? options + 6 : "";
  if (strcmp(fault, "silent") == 0) return NULL;
  if (strcmp(fault, "endless_message") == 0) {
    memset(error, 'A', error_size);
    return NULL;
  }
  faulty_strategy* self = calloc(1, sizeof *self);
  if (self == NULL) return NULL;
  strncpy(self->fault, fault, sizeof self->fault - 1);
  self->driver = driver;
  self->pool = driver->reserve(driver->context, kPoolBytes);
  return self;
}

static void destroy(void* strategy) {
  faulty_strategy* self = strategy;
  const headroom_driver* driver = self->driver;
  if (!has(self, "leak")) driver->unreserve(driver->context, self->pool, kPoolBytes);
  if (has(self, "release_twice")) driver->unreserve(driver->context, self->pool, kPoolBytes);
  free(self);
}

static void* allocate(void* strategy, int64_t bytes, void* stream, int64_t* block_bytes) {
  faulty_strategy* self = strategy;
  const headroom_driver* driver = self->driver;
  (void)stream;
  *block_bytes = bytes;
  if (has(self, "reserve_negative")) return driver->reserve(driver->context, -1);
  if (has(self, "reserve_huge")) return driver->reserve(driver->context, INT64_MAX);
  if (has(self, "release_wild")) driver->unreserve(driver->context, (void*)0x1234, 512);
  if (has(self, "release_part")) driver->unreserve(driver->context, self->pool, 512);
  if (has(self, "unaligned")) return self->pool + 1;
  if (has(self, "same")) return self->pool;
  if (has(self, "wild")) return (void*)0x10000;
  if (has(self, "past_the_end")) return self->pool + kPoolBytes - 256;
  if (has(self, "small")) *block_bytes = bytes - 256;
  if (has(self, "negative")) *block_bytes = -5;
  if (has(self, "huge")) *block_bytes = INT64_MAX;
  if (self->used + bytes > kPoolBytes) return NULL;
  self->used += bytes;
  return self->pool + self->used - bytes;
}

static int64_t deallocate(void* strategy, void* pointer, int64_t bytes, void* stream) {
  faulty_strategy* self = strategy;
  (void)stream;
  (void)pointer;
  return has(self, "free_nothing")    ? 0
         : has(self, "free_negative") ? -7
         : has(self, "free_more")     ? 2 * bytes
                                      : bytes;
}

static int64_t trim(void* strategy) {
  const faulty_strategy* self = strategy;
  return has(self, "trim_negative") ? -5 : has(self, "trim_huge") ? INT64_MAX : 0;
}

static int64_t largest_free_block(void* strategy) {
  const faulty_strategy* self = strategy;
  return has(self, "largest_negative") ? -1 : has(self, "largest_huge") ? INT64_MAX : kPoolBytes - self->used;
}

const headroom_strategy* headroom_strategy_v1(void) {
#ifdef WITHOUT_FUNCTIONS
  static const headroom_strategy functions = {
      sizeof(headroom_strategy), create, destroy, NULL, NULL, NULL, NULL};
#else
  static const headroom_strategy functions = {
      sizeof(headroom_strategy), create, destroy, allocate, deallocate, trim, largest_free_block};
#endif
  return &functions;
}
