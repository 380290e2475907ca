// A valid job with nothing in it but what must be given, for tests of what keys lead to.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/config/job_reader.h"

namespace sluice::testing {

// `overrides` as on the command line: "engine.model_dtype=bf16". A test that gives a wrong one fails.
inline v1::JobSpec MinimalJob(const std::vector<std::string>& overrides) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = "model: {path: m}\ndata: {train_files: t, val_files: v}\n";
  options.overrides = overrides;
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = "/folder";
  auto spec = LoadJobSpec(options);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : v1::JobSpec();
}

}  // namespace sluice::testing
