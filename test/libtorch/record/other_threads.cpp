// Pointers that threads take which have not joined a step.

#include <torch/torch.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/other_threads.hpp>

using namespace reprise::recording;
using torch::Tensor;

namespace {

struct Listener final : PointerListener {
  std::recursive_mutex mutex{};
  std::vector<c10::StorageImpl*> told{};
  std::atomic<bool> asked{false};

  Listener() { OtherThreads::listen(this); }
  ~Listener() override { OtherThreads::unlisten(this); }
  std::recursive_mutex& guard() override {
    asked = true;
    return mutex;
  }
  void note_pointer(c10::StorageImpl* storage) override { told.push_back(storage); }
};

}  // namespace

TEST_CASE("every listener is told of a pointer, and none that has gone", "[other_threads]") {
  const Tensor t = torch::ones({1});
  c10::StorageImpl* const storage = t.storage().unsafeGetStorageImpl();
  Listener first;
  {
    const Listener second;
    OtherThreads::tell(storage);
    CHECK(second.told == std::vector{storage});
  }
  OtherThreads::tell(storage);
  CHECK(first.told == std::vector{storage, storage});
}

TEST_CASE("a thread that takes a pointer waits while an op of the step runs", "[other_threads]") {
  const Tensor t = torch::ones({1});
  Listener listener;
  std::thread thread;
  {
    const std::lock_guard op(listener.mutex);
    thread = std::thread([&] { OtherThreads::tell(t.storage().unsafeGetStorageImpl()); });
    while (!listener.asked) std::this_thread::yield();
    CHECK(listener.told.empty());
  }
  thread.join();
  CHECK(listener.told.size() == 1);
}
