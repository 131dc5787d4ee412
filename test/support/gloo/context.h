#pragma once
// LibTorch's packages bring the Gloo library, but not its headers. What ProcessGroupGloo.hpp names
// of them is declared in this folder: only pointers to these types are ever held here.

#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
namespace transport {
class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};
}  // namespace transport
}  // namespace gloo
