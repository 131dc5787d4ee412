#pragma once
// One block of memory for all that a program allocates: addresses are planned once, and the block is used again in every step.
//
//   ArenaLayout layout = layout_arena(recording, rewriting, trace, …); where each block lies: arena_layout.hpp
//   ArenaMemory arena;
//   arena.start(layout);                                               grows to the largest layout, and stays
//   program.run(bindings, observer, arena);                            no page faults, no allocator
//
//   step         conv                 relu                 backward
//   take         8192 at 0            8192 at 8256         4096 at 0       each behind the 64 bytes of the allocator's header
//
// The layout is a promise about lifetimes, and it is not trusted: a planned address is given out only where everything that had a part
// of it before is dead; else, and where an op asks for other sizes than planned, the block comes from the allocator and is counted.
// Gradients lie in the arena too. One that is still alive when the next step starts is moved to memory of its own first: whoever holds
// the tensor sees the same numbers. The step's results (the loss) never lie there.

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/alloc_cpu.h>

#include <reprise/libtorch/arena_layout.hpp>
#include <reprise/libtorch/counting_allocator.hpp>

namespace reprise {

/// The bytes. They live until the arena has let go of them and every block in them is dead.
class ArenaBlock final : public BlockSource {
 public:
  explicit ArenaBlock(Bytes height)
      : height_(height), memory_(static_cast<std::byte*>(c10::alloc_cpu(static_cast<std::size_t>(height.count)))) {
    use_large_pages();
  }
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;

  [[nodiscard]] Bytes height() const { return height_; }
  [[nodiscard]] Bytes capacity() const { return counted_; }
  /// Blocks that are alive in it.
  [[nodiscard]] std::int64_t alive() const { return references_.load(std::memory_order_acquire) - 1; }

  void let_go() { drop(); }

  /// Only where nothing is alive.
  void start(const ArenaLayout& layout) {
    layout_ = &layout;
    if (layout.counted > counted_) {
      cpu_memory().add_spare((layout.counted - counted_).count);
      counted_ = layout.counted;
    }
    if (states_.size() < layout.blocks.size()) states_ = std::vector<std::atomic<State>>(layout.blocks.size());
    for (auto& state : states_) state.store(State::dead, std::memory_order_relaxed);
    taken_ = fallbacks_ = 0;
  }

  void begin_step(std::size_t i) {
    next_ = layout_->first[i];
    end_ = layout_->first[i + 1];
  }
  // What was planned and not taken counts as alive: nothing is known of who has its bytes.
  void end_step() {
    if (next_ < end_) ++fallbacks_;
    for (; next_ < end_; ++next_) states_[next_].store(State::blocked, std::memory_order_relaxed);
  }

  std::byte* take(std::size_t bytes, std::uint32_t& number) override {
    if (next_ >= end_) return ++fallbacks_, nullptr;
    const std::uint32_t b = next_;
    const PlannedBlock& block = layout_->blocks[b];
    if (block.bytes != bytes) {
      end_step();
      return nullptr;
    }
    ++next_;
    if (block.offset == PlannedBlock::outside) return nullptr;
    for (std::uint32_t p : layout_->before[b]) {
      if (states_[p].load(std::memory_order_acquire) == State::dead) continue;
      states_[b].store(State::blocked, std::memory_order_relaxed);
      return ++fallbacks_, nullptr;
    }
    states_[b].store(State::alive, std::memory_order_relaxed);
    references_.fetch_add(1, std::memory_order_relaxed);
    ++taken_;
    number = b;
    return memory_ + block.offset;
  }

  void give_back(std::uint32_t number) override {
    states_[number].store(State::dead, std::memory_order_release);
    drop();
  }

  [[nodiscard]] std::int64_t taken() const { return taken_; }
  [[nodiscard]] std::int64_t fallbacks() const { return fallbacks_; }

 private:
  enum class State : std::uint8_t { dead, alive, blocked };

  ~ArenaBlock() override {
    cpu_memory().add_spare(-counted_.count);
    c10::free_cpu(memory_);
  }

  // Fewer faults when it is touched first, and fewer misses of the address cache from then on.
  void use_large_pages() {
#ifdef __linux__
    constexpr std::uintptr_t page = 4096;
    const auto low = (reinterpret_cast<std::uintptr_t>(memory_) + page - 1) / page * page;
    const auto high = (reinterpret_cast<std::uintptr_t>(memory_) + static_cast<std::uintptr_t>(height_.count)) / page * page;
    if (low < high) ::madvise(reinterpret_cast<void*>(low), high - low, MADV_HUGEPAGE);  // a wish: whether it is met does not matter
#endif
  }

  void drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  Bytes height_;
  Bytes counted_{};
  std::byte* memory_;
  std::atomic<std::int64_t> references_{1};
  const ArenaLayout* layout_ = nullptr;
  std::vector<std::atomic<State>> states_;  // by block
  std::uint32_t next_ = 0, end_ = 0;
  std::int64_t taken_ = 0, fallbacks_ = 0;
};

/// What one run took from the arena.
struct ArenaUse {
  std::int64_t taken = 0;      ///< blocks at planned addresses
  std::int64_t fallbacks = 0;  ///< that had to come from the allocator
};

/// Holds the block from step to step, for the plans of all shapes. One thread at a time.
class ArenaMemory {
 public:
  static constexpr bool plans_addresses = true;

  ArenaMemory() = default;
  ~ArenaMemory() {
    if (block_ != nullptr) block_->let_go();  // gradients that are still in it keep it
  }
  ArenaMemory(ArenaMemory&& other) noexcept : block_(std::exchange(other.block_, nullptr)), handed_over_(std::move(other.handed_over_)) {}
  ArenaMemory& operator=(ArenaMemory&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(handed_over_, other.handed_over_);
    return *this;
  }

  [[nodiscard]] Bytes capacity() const { return block_ == nullptr ? Bytes{0} : block_->capacity(); }

  /// Gives the memory back. What is still alive in it is moved to memory of its own.
  void release() {
    settle();
    if (block_ != nullptr) block_->let_go();
    block_ = nullptr;
  }

  /// What the last run handed over and is still alive gets memory of its own: the arena is free.
  void settle() {
    for (auto& weak : handed_over_) {
      const auto storage = weak.lock();
      if (!storage || !CountingAllocator::in_arena(storage->_mutable_data_ptr_no_checks())) continue;
      c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
      const auto bytes = static_cast<std::size_t>(CountingAllocator::bytes_of(data).count);
      c10::DataPtr own = counting_allocator().allocate(bytes);
      std::memcpy(own.get(), data.get(), bytes);
      storage->set_data_ptr_noswap(std::move(own));
    }
    handed_over_.clear();
  }

  /// Before a run: the arena is free, and there is room for the layout.
  void start(const ArenaLayout& layout) {
    settle();
    if (block_ != nullptr && (block_->alive() > 0 || block_->height() < layout.height)) {
      block_->let_go();
      block_ = nullptr;
    }
    if (block_ == nullptr) {
      give_back_free_pages();
      block_ = new ArenaBlock(layout.height);
    }
    block_->start(layout);
  }

  // ── what a running program asks for ───────────────────────────────────────────────────────────────────────────────────────
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
      if (g.defined() && CountingAllocator::in_arena(g.storage().data_ptr())) handed_over_.push_back(g.storage().getWeakStorageImpl());
  }

  [[nodiscard]] ArenaUse use() const { return block_ == nullptr ? ArenaUse{} : ArenaUse{block_->taken(), block_->fallbacks()}; }

 private:
  // What the captured step has freed stays with glibc, and the arena would come on top of it: the process would never be smaller than
  // eager's and the arena together.
  static void give_back_free_pages() {
#ifdef __GLIBC__
    ::malloc_trim(0);
#endif
  }

  ArenaBlock* block_ = nullptr;
  BlockSource* outer_ = nullptr;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> handed_over_;  // gradients that lie in it
};

/// The other policy: every block from the allocator.
struct AllocatorMemory {
  static constexpr bool plans_addresses = false;

  [[nodiscard]] static Bytes capacity() { return {}; }
  void release() {}
  void settle() {}
  void start(const ArenaLayout& /*layout*/) {}
  void begin(std::size_t /*step*/) {}
  void end() {}
  void hand_over(const std::vector<at::Tensor>& /*gradients*/) {}
  [[nodiscard]] static ArenaUse use() { return {}; }
};

/// StepMemory requires
///   1. plans_addresses                            whether start() is given a layout at all
///   2. start(layout), then for each step of the program begin(i), end(), then hand_over(gradients)
///   3. settle(), release(), capacity(), use()     see ArenaMemory
template <class M>
concept StepMemory = requires(M& memory, const ArenaLayout& layout, const std::vector<at::Tensor>& gradients) {
  { M::plans_addresses } -> std::convertible_to<bool>;
  memory.start(layout);
  memory.begin(std::size_t{});
  memory.end();
  memory.hand_over(gradients);
  memory.settle();
  memory.release();
  { memory.capacity() } -> std::convertible_to<Bytes>;
  { memory.use() } -> std::convertible_to<ArenaUse>;
};
static_assert(StepMemory<ArenaMemory> && StepMemory<AllocatorMemory>);

}  // namespace reprise
