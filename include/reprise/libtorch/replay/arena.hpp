#pragma once
// ArenaMemory is one memory range for all blocks of a program. Addresses are planned once, and
// every step uses the range again.
//
//   ArenaLayout layout = layout_arena(recording, rewriting, trace, …); the offset of each block: arena_layout.hpp
//   ArenaMemory arena;
//   arena.start(layout);                                               grows to the largest layout, and stays
//   program.run(bindings, observer, arena);                            no page faults, no allocator
//
//   step         conv                 relu                 backward
//   take         8192 at 0            8192 at 8256         4096 at 0       each after the 64 bytes of the allocator's header
//
// ArenaMemory does not trust the layout's lifetimes. It returns a planned address only if all
// blocks that had part of it before are dead. Otherwise, or if an op asks for another size than
// planned, the block comes from the allocator and counts as a miss. Gradients are in the arena too.
// A gradient that is still alive when the next step starts is first moved to memory of its own,
// with the same numbers. The step's results (the loss) are never in the arena.

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <c10/core/StorageImpl.h>

#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/replay/arena_layout.hpp>
#include <reprise/libtorch/replay/step_memory.hpp>

namespace reprise::replaying {

/// The memory range. It is freed when the arena has released it and every block in it is dead.
class ArenaBuffer final : public BlockSource {
 public:
  explicit ArenaBuffer(Bytes height)
      : height_(height),
        memory_(static_cast<std::byte*>(
            ::operator new(static_cast<std::size_t>(height.count), alignment()))) {
    use_large_pages();
  }
  ArenaBuffer(const ArenaBuffer&) = delete;
  ArenaBuffer& operator=(const ArenaBuffer&) = delete;

  [[nodiscard]] Bytes height() const { return height_; }
  [[nodiscard]] Bytes capacity() const { return counted_; }
  /// Number of living blocks in it.
  [[nodiscard]] std::int64_t alive() const {
    return references_.load(std::memory_order_acquire) - 1;
  }

  void let_go() { drop(); }

  /// Only if no block in it is alive.
  void start(const ArenaLayout& layout) {
    layout_ = &layout;
    if (layout.counted > counted_) {
      device_memory().add_reserved_unused((layout.counted - counted_).count);
      counted_ = layout.counted;
    }
    if (states_.size() < layout.blocks.size())
      states_ = std::vector<std::atomic<State>>(layout.blocks.size());
    for (auto& state : states_) state.store(State::dead, std::memory_order_relaxed);
    ground_ = std::max(ground_, layout.ground);
    give_back_pages({ground_.count, height_.count});
    taken_ = fallbacks_ = 0;
  }

  void begin_step(std::size_t i) {
    next_ = layout_->first[i];
    end_ = layout_->first[i + 1];
  }
  void end_step() {
    if (next_ < end_) ++fallbacks_;
    skip_to(end_);
  }

  std::byte* take(std::size_t bytes, std::uint32_t& number) override {
    const std::uint32_t b = find(bytes);
    if (b == end_) return ++fallbacks_, nullptr;
    skip_to(b);
    ++next_;
    give_back_before(b);
    if (layout_->blocks[b].offset == PlannedBlock::outside) return nullptr;
    if (!is_free(b)) {
      states_[b].store(State::blocked, std::memory_order_relaxed);
      return ++fallbacks_, nullptr;
    }
    states_[b].store(State::alive, std::memory_order_relaxed);
    references_.fetch_add(1, std::memory_order_relaxed);
    ++taken_;
    number = b;
    return memory_ + layout_->blocks[b].offset;
  }

  void give_back(std::uint32_t number) override {
    states_[number].store(State::dead, std::memory_order_release);
    drop();
  }

  [[nodiscard]] std::int64_t taken() const { return taken_; }
  [[nodiscard]] std::int64_t fallbacks() const { return fallbacks_; }

 private:
  enum class State : std::uint8_t { dead, alive, blocked };

  // An op that asks for another workspace than planned still asks for its outputs: returns the op's
  // next block of that size.
  [[nodiscard]] std::uint32_t find(std::size_t bytes) const {
    for (std::uint32_t b = next_; b < end_; ++b)
      if (layout_->blocks[b].bytes == bytes) return b;
    return end_;
  }

  // Whether all blocks that had part of this block's bytes last are dead.
  [[nodiscard]] bool is_free(std::uint32_t b) const { return all_dead(layout_->before[b]); }

  [[nodiscard]] bool all_dead(std::span<const std::uint32_t> blocks) const {
    for (std::uint32_t b : blocks)
      if (states_[b].load(std::memory_order_acquire) != State::dead) return false;
    return true;
  }

  // A block that was planned and not taken. Later blocks check only this block's state, so it
  // stands for the blocks before it.
  void skip_to(std::uint32_t b) {
    for (; next_ < b; ++next_) {
      give_back_before(next_);
      states_[next_].store(is_free(next_) ? State::dead : State::blocked,
                           std::memory_order_relaxed);
    }
  }

  // Gives back pages that are dead for a while, if all blocks that had part of them are dead.
  void give_back_before(std::uint32_t b) {
    if (layout_->give_backs.size() == 0) return;
    for (const GiveBack& going : layout_->give_backs[b])
      if (all_dead(layout_->owners[going.owners])) give_back_pages(going.pages);
  }

  void give_back_pages([[maybe_unused]] PageRun pages) {
#ifdef __linux__
    const std::int64_t page = system_page().count;
    const std::int64_t low = (pages.begin + page - 1) / page * page, high = pages.end / page * page;
    if (low < high) ::madvise(memory_ + low, static_cast<std::size_t>(high - low), MADV_DONTNEED);
#endif
  }

  ~ArenaBuffer() override {
    device_memory().add_reserved_unused(-counted_.count);
    ::operator delete(memory_, alignment());
  }
  static std::align_val_t alignment() {
    return std::align_val_t{
        std::max(static_cast<std::size_t>(system_page().count), std::size_t{c10::gAlignment})};
  }

  // Large pages cause fewer faults when they are first touched, and fewer misses of the address
  // cache.
  void use_large_pages() {
#ifdef __linux__
    const std::int64_t page = system_page().count;
    // a hint: correctness does not depend on it
    ::madvise(memory_, static_cast<std::size_t>(height_.count / page * page), MADV_HUGEPAGE);
#endif
  }

  void drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  Bytes height_;
  Bytes counted_{}, ground_{};
  std::byte* memory_;
  std::atomic<std::int64_t> references_{1};
  const ArenaLayout* layout_ = nullptr;
  std::vector<std::atomic<State>> states_;  // by block
  std::uint32_t next_ = 0, end_ = 0;
  std::int64_t taken_ = 0, fallbacks_ = 0;
};

/// Keeps the range from step to step, for the plans of all shapes. One thread at a time.
class ArenaMemory {
 public:
  static constexpr bool plans_addresses = true;

  ArenaMemory() = default;
  ~ArenaMemory() {
    if (block_ != nullptr) block_->let_go();  // living gradients in it keep it
  }
  ArenaMemory(ArenaMemory&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)), handed_over_(std::move(other.handed_over_)) {}
  ArenaMemory& operator=(ArenaMemory&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(handed_over_, other.handed_over_);
    return *this;
  }

  [[nodiscard]] Bytes capacity() const { return block_ == nullptr ? Bytes{0} : block_->capacity(); }

  /// Frees the range. Living gradients in it are moved to memory of their own.
  void release() {
    settle();
    if (block_ != nullptr) block_->let_go();
    block_ = nullptr;
  }

  /// Moves living gradients of the last run to memory of their own: the arena is then empty.
  void settle() {
    for (auto& weak : handed_over_) {
      const auto storage = weak.lock();
      if (!storage || !ThisDevice::in_arena(storage->_mutable_data_ptr_no_checks())) continue;
      c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
      const auto bytes = static_cast<std::size_t>(ThisDevice::bytes_of(data).count);
      c10::DataPtr own = ThisDevice::allocator().allocate(bytes);
      std::memcpy(own.get(), data.get(), bytes);
      storage->set_data_ptr_noswap(std::move(own));
    }
    handed_over_.clear();
  }

  /// Call it before a run: empties the arena, and grows it to the layout.
  void start(const ArenaLayout& layout) {
    settle();
    if (block_ != nullptr && (block_->alive() > 0 || block_->height() < layout.height)) {
      block_->let_go();
      block_ = nullptr;
    }
    if (block_ == nullptr) {
      give_back_free_pages();
      block_ = new ArenaBuffer(layout.height);
    }
    block_->start(layout);
  }

  // ── called by a running program ────────────────────────────────────────────────────────────────
  void begin(std::size_t step) {
    block_->begin_step(step);
    outer_ = std::exchange(block_source(), block_);
  }
  void end() {
    block_source() = outer_;
    block_->end_step();
  }
  void hand_over(const std::vector<at::Tensor>& gradients) {
    for (const at::Tensor& g : gradients)
      if (g.defined() && ThisDevice::in_arena(g.storage().data_ptr()))
        handed_over_.push_back(g.storage().getWeakStorageImpl());
  }

  [[nodiscard]] ArenaUse use() const {
    return block_ == nullptr ? ArenaUse{} : ArenaUse{block_->taken(), block_->fallbacks()};
  }

 private:
  // glibc keeps the pages that the captured step has freed. Without this call, the process would
  // always need eager's pages in addition to the arena.
  static void give_back_free_pages() {
#ifdef __GLIBC__
    ::malloc_trim(0);
#endif
  }

  ArenaBuffer* block_ = nullptr;
  BlockSource* outer_ = nullptr;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> handed_over_;  // gradients in the arena
};
static_assert(StepMemory<ArenaMemory>);

}  // namespace reprise::replaying

namespace reprise {
using replaying::ArenaMemory;
}  // namespace reprise
