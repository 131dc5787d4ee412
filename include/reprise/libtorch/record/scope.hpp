#pragma once
// scope() gives a name to a part of a step:
//
//   auto in_encoder = reprise::scope("encoder");
//   auto h = attention->forward(x);               // its nodes are named "encoder/…" if no parameter names them
//
// The name holds on this thread until the object goes out of scope.

#include <string>
#include <utility>
#include <vector>

#include <reprise/base/rooms.hpp>

namespace reprise::recording {

inline std::vector<std::string>& open_scopes() {
  thread_local std::vector<std::string> names;
  return names;
}

class [[nodiscard]] Scope {
 public:
  explicit Scope(std::string name) { open_scopes().push_back(std::move(name)); }
  ~Scope() { open_scopes().pop_back(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

[[nodiscard]] inline Scope scope(std::string name) { return Scope(std::move(name)); }

/// The open scopes, outermost first, joined by '/'.
[[nodiscard]] inline std::string current_scope() {
  std::string path;
  for (const std::string& name : open_scopes()) path += (path.empty() ? "" : "/") + name;
  return path;
}

}  // namespace reprise::recording

namespace reprise {
using recording::Scope;
using recording::scope;
}  // namespace reprise
