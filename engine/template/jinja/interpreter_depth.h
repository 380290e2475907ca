// Shared by the interpreter's files.
#pragma once

#include "engine/template/jinja/interpreter.h"

namespace sluice::engine::jinja {

// Counts one level for its lifetime.
class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(int* depth) : depth_(*depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace sluice::engine::jinja
