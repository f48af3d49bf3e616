/* Shifts the wall clock of the process it is preloaded into, and leaves its monotonic clocks alone.
 *
 * The shift is one 64-bit count of milliseconds in the file that PRELOADED_CLOCK names, mapped, so that whoever
 * writes to that file steps the clock at once. The system call is made directly: looking up the next function would
 * allocate, and an allocator may read the clock before it is ready. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift_ms;

__attribute__((constructor)) static void open_shift(void) {
  const char *path = getenv("PRELOADED_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (at != MAP_FAILED) shift_ms = at;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = (int)syscall(SYS_clock_gettime, clock, time);
  if (result != 0 || !shift_ms || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  int64_t by_ms = *shift_ms;
  int64_t ns = time->tv_nsec + by_ms % 1000 * 1000000;
  time->tv_sec += by_ms / 1000;
  if (ns < 0) ns += 1000000000, time->tv_sec--;
  if (ns >= 1000000000) ns -= 1000000000, time->tv_sec++;
  time->tv_nsec = ns;
  return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}
