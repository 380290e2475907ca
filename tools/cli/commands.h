// The commands of `sluice`. Each Add function declares its arguments and leaves behind what runs when it is chosen.
#pragma once

#include <functional>
#include <string>

#include <CLI/App.hpp>

#include "tools/cli/output.h"

namespace sluice::cli {

// Options that stand before or after any command.
struct GlobalOptions {
  std::string controller = "127.0.0.1:7070";
  Format format = Format::kTable;
};

// What the chosen command does; returns the process's exit code.
using Action = std::function<int()>;

void AddRunCommand(CLI::App& app, const GlobalOptions& global, Action& action);
void AddSubmitCommand(CLI::App& app, const GlobalOptions& global, Action& action);
void AddJobCommands(CLI::App& app, const GlobalOptions& global,
                    Action& action);  // get, list, watch, logs, cancel, workers
void AddPlanCommand(CLI::App& app, const GlobalOptions& global, Action& action);
void AddConfigCommand(CLI::App& app, Action& action);
void AddEvalCommand(CLI::App& app, const GlobalOptions& global, Action& action);
void AddGenerateCommand(CLI::App& app, const GlobalOptions& global, Action& action);
void AddReplayCommand(CLI::App& app, const GlobalOptions& global, Action& action);
void AddTimelineCommand(CLI::App& app, const GlobalOptions& global, Action& action);
void AddVersionCommand(CLI::App& app, const GlobalOptions& global, Action& action);

}  // namespace sluice::cli
