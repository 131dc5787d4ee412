#pragma once
// What one part of the program sees of the things that must exist once in a process.

struct Seen {
  const void* allocator;  // that counts
  const void* memory;     // the counter
  const void* hook;       // the recorder that is on
  bool counted;           // LibTorch allocates through the one that this part sees
};

#define CONSUMER_PART extern "C" __attribute__((visibility("default")))

CONSUMER_PART Seen first_sees();
CONSUMER_PART Seen second_sees();
// returns how many steps were replayed; `meanwhile` is called inside one
CONSUMER_PART int first_trains(bool (*meanwhile)());
// false where Reprise refuses: a step is being recorded already
CONSUMER_PART bool second_trains();
