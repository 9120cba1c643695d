// What a test program does where a result is wrong: it says so, of the first few, and counts. It has rank and errors.
#include <stdio.h>

#define FAIL(...)                                                                                                              \
  do {                                                                                                                         \
    if (errors++ < 5) {                                                                                                        \
      printf("rank %d: ", rank);                                                                                               \
      printf(__VA_ARGS__);                                                                                                     \
      printf("\n");                                                                                                            \
    }                                                                                                                          \
  } while (0)
