#pragma once
// Gives what the heap has free back to the system, where the C library can do that (glibc).
//
//   after a step of a state-space scan, beside what was there before:
//
//     156 MiB resident, 43 MiB in use      glibc keeps what was freed: beneath blocks that live, and in
//                                          the arena of the planner's thread
//     give_back_free_heap()
//      58 MiB resident
//
// Some milliseconds for a heap of 100 MiB, and a page fault where the memory is wanted again: for
// the end of something that comes seldom.

#ifdef __linux__
#include <malloc.h>
#endif

#include <reprise/base/rooms.hpp>

namespace reprise::base {

inline void give_back_free_heap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace reprise::base
