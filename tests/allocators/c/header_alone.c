/* The header of the C interface stands alone: strict C99, nothing before it. */
#include "allocators/headroom_strategy.h"

int size_of_counts_in_c(void) {
  return (int)sizeof(headroom_counts);
}
