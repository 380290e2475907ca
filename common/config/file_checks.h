// Whether the paths of a job lead to what the job needs. Looks, never writes; cheap enough for every submit.
#pragma once

#include <string>
#include <vector>

#include "common/config/config_error.h"
#include "common/file_system.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// Every path that does not fit, with its key:
//   model.path: /data/qwen has no config.json (is it a Hugging Face folder?)
// Checked: the model, configuration and tokenizer folders and the files they must hold, those of a critic, a reference
// model and reward models, that each data file or glob
// leads to at least one .jsonl or .parquet file, the checkpoint to resume from, that default_local_dir is no file and,
// with resume_mode disable, holds no checkpoint, and the template file.
std::vector<ConfigError> CheckFiles(const v1::JobSpec& spec, FileSystem& file_system);

}  // namespace sluice
