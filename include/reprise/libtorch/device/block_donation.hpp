#pragma once
// An op's result in the place of one of its operands, without the op knowing: the next block of
// that size that this thread asks for is the operand's own.
//
//   BlockDonation takeover(b.storage());
//   c = add(a, b);                              c's block is b's: both storages point to it
//   if (takeover.taken_by(c)) …                 b's storage gives its pointer up without freeing anything (takeover.leave(pointer)):
//                                               the block is c's now
//
// Where the op throws, its result dies on the way, but the block does not: it is still the
// operand's.

#include <cstddef>
#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/device/device.hpp>

namespace reprise::devices {

class BlockDonation final : public BlockKeeper {
 public:
  /// Only for a block of the device's allocator. The operand lives for as long as the
  /// takeover does.
  explicit BlockDonation(c10::Storage operand) : operand_(std::move(operand)) {
    const c10::DataPtr& block = pointer();
    block_ = block.get();
    before_ = ThisDevice::keeper_of(block_);
    ThisDevice::listen(this);
    ThisDevice::set_keeper(block_, {this, 0});
    ThisDevice::hooks().handed = {block_,
                                  static_cast<std::size_t>(ThisDevice::bytes_of(block).count)};
  }
  ~BlockDonation() override {
    ThisDevice::hooks().handed = {};
    if (!left_) ThisDevice::set_keeper(block_, before_);
    ThisDevice::unlisten(this);
  }
  BlockDonation(const BlockDonation&) = delete;
  BlockDonation& operator=(const BlockDonation&) = delete;

  /// Somebody has got the block, and may have written to it.
  [[nodiscard]] bool taken() const { return ThisDevice::hooks().handed.bytes == 0; }

  /// After the op: whether what it made lies in the block. Throws where something else has got it:
  /// then the operand is lost.
  [[nodiscard]] bool taken_by(const at::Tensor& result) const {
    if (!taken()) return false;
    if (result.storage().data() == block_) return true;
    throw Error(Errc::capture_failed,
                "an op took the memory of one of its operands for something else than its result; "
                "please report this");
  }

  /// The operand's pointer to the block goes, the block stays. Its keeper is whoever the result's
  /// owner has named.
  void leave(c10::DataPtr&& pointer) {
    static_cast<void>(pointer.release_context());
    if (ThisDevice::keeper_of(block_).keeper == this) ThisDevice::set_keeper(block_, {});
    left_ = true;
  }

  /// The operand's own.
  [[nodiscard]] c10::DataPtr& pointer() {
    return operand_.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  }

  // the result of an op that threw
  bool keep(void* /*data*/, std::uint32_t /*tag*/) override { return true; }

 private:
  c10::Storage operand_;
  void* block_ = nullptr;
  Keeping before_{};
  bool left_ = false;
};

}  // namespace reprise::devices
