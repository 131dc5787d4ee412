#pragma once
// An op's result in the place of one of its operands, without the op knowing: the next block of that size that this thread asks for is
// the operand's own.
//
//   BlockTakeover takeover(b.storage().data_ptr());
//   c = add(a, b);                              c's block is b's: both storages point to it
//   if (takeover.taken()) …                     b's storage lets go of it without freeing it (takeover.leave(b's data)); it is c's now
//
// Where the op throws, its result dies on the way, but the block does not: it is still the operand's.

#include <cstdint>

#include <c10/core/Storage.h>

#include <reprise/libtorch/counting_allocator.hpp>

namespace reprise {

class BlockTakeover final : public BlockKeeper {
 public:
  /// Only for a block that the counting allocator made.
  explicit BlockTakeover(const c10::DataPtr& block) : block_(block.get()), before_(CountingAllocator::keeper_of(block)) {
    CountingAllocator::listen(this);
    CountingAllocator::set_keeper(block, this);
    handed_block() = {block_, static_cast<std::size_t>(CountingAllocator::bytes_of(block).count)};
  }
  ~BlockTakeover() override {
    handed_block() = {};
    if (!left_) CountingAllocator::set_keeper(block_, before_);
    CountingAllocator::unlisten(this);
  }
  BlockTakeover(const BlockTakeover&) = delete;
  BlockTakeover& operator=(const BlockTakeover&) = delete;

  /// The op has got the block.
  [[nodiscard]] bool taken() const { return handed_block().bytes == 0; }

  /// After an op that has taken it: the operand's pointer to it goes, the block stays. Its keeper is whoever the result's owner has named.
  void leave(c10::DataPtr&& operand) {
    static_cast<void>(operand.release_context());
    if (CountingAllocator::keeper_of(block_).keeper == this) CountingAllocator::set_keeper(block_, {});
    left_ = true;
  }

  bool keep(void* /*data*/, std::uint32_t /*tag*/) override { return true; }  // the result of an op that threw

 private:
  void* block_;
  CountingAllocator::Keeping before_;
  bool left_ = false;
};

}  // namespace reprise
