/* A library that takes the loader long to load: it has tens of thousands of slots for functions, half of them hooked. */
#include <stdlib.h>
#include <string.h>

#define TWO (void *)malloc, (void *)strlen,
#define EIGHT TWO TWO TWO TWO
#define SIXTY_FOUR EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT
#define MANY SIXTY_FOUR SIXTY_FOUR SIXTY_FOUR SIXTY_FOUR SIXTY_FOUR SIXTY_FOUR SIXTY_FOUR SIXTY_FOUR
#define MORE MANY MANY MANY MANY MANY MANY MANY MANY
#define MOST MORE MORE MORE MORE MORE MORE MORE MORE

void *const many_relocations[] = {MOST};

void *allocate(size_t size) { return ((void *(*)(size_t))many_relocations[0])(size); }
