#pragma once
// REPRISE_ONE_PER_PROCESS marks state that must exist once in a process. Shared objects that each
// include the headers and hide their own symbols then still share that state.
//
//   REPRISE_ONE_PER_PROCESS inline Registry& registry() {
//     static Registry all;
//     return all;
//   }

#if defined(__GNUC__)
#define REPRISE_ONE_PER_PROCESS [[gnu::visibility("default")]]
#else
#define REPRISE_ONE_PER_PROCESS
#endif
