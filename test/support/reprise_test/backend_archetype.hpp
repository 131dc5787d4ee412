#pragma once
// The smallest GraphBackend: its program can be moved and nothing else, and neither can be made out
// of nothing.

#include <reprise/rewrite/concepts.hpp>

namespace reprise_test {

class ProgramArchetype {
 public:
  ProgramArchetype(ProgramArchetype&&) = default;
  ProgramArchetype& operator=(ProgramArchetype&&) = default;
  ProgramArchetype(const ProgramArchetype&) = delete;
  ProgramArchetype& operator=(const ProgramArchetype&) = delete;

 private:
  friend class BackendArchetype;
  ProgramArchetype() = default;
};

class BackendArchetype {
 public:
  using Program = ProgramArchetype;

  static BackendArchetype make() { return {}; }
  BackendArchetype(BackendArchetype&&) = default;
  BackendArchetype& operator=(BackendArchetype&&) = delete;

  Program compile(const reprise::StepGraph&, const reprise::Rewriting&) const { return {}; }

 private:
  BackendArchetype() = default;
};

}  // namespace reprise_test
