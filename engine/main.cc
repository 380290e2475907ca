// sluice-engine: one rank. Started by a worker (or by `sluice` for looking at a model or at data); it serves
// EngineService on a unix socket and ends when it is told to, or with the process that started it.

#include <ATen/Parallel.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/grpc_channel.h"
#include "common/logging.h"
#include "engine/comm/communicator.h"
#include "engine/roles/make_role.h"
#include "engine/service/engine_service.h"

namespace {

constexpr int kUsageExitCode = 2;

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of a Sluice job. Workers start it; it is not meant to be started by hand.");
  std::string socket;
  int cpu_threads = 1;
  bool serve_rendezvous = false;
  sluice::engine::RoleOptions role_options;
  app.add_option("--socket", socket, "Unix socket to serve on")->required();
  app.add_option("--rank", role_options.rank, "The rank")->required();
  app.add_option("--cpu-threads", cpu_threads, "Threads of the computation")->check(CLI::Range(1, 1024));
  app.add_option("--host", role_options.host, "Address of the interface that peers connect to")->capture_default_str();
  app.add_flag("--serve-rendezvous", serve_rendezvous, "Serve the store at which ranks on several hosts meet");
  app.set_version_flag("--version", sluice::BuildVersion());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExitCode;
  }

  // Blocked before any thread starts, so that only the thread below sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  at::set_num_threads(cpu_threads);
  std::unique_ptr<sluice::engine::RendezvousServer> rendezvous;
  if (serve_rendezvous) {
    auto started = sluice::engine::RendezvousServer::Start();
    if (!started.ok()) {
      std::fprintf(stderr, "sluice-engine: %s\n", std::string(started.status().message()).c_str());
      return 1;
    }
    rendezvous = *std::move(started);
  }
  sluice::engine::EngineServiceImpl service(
      [&role_options](const sluice::v1::JobSpec& spec) { return sluice::engine::MakeRole(spec, role_options); },
      role_options.rank, rendezvous == nullptr ? 0 : rendezvous->port());
  grpc::ServerBuilder builder;
  sluice::ApplyServerLimits(&builder);
  builder.AddListeningPort(absl::StrCat("unix:", socket), grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "sluice-engine: cannot listen on unix:%s\n", socket.c_str());
    return 1;
  }
  std::thread([&signals, &service] {
    int signal_number = 0;
    sigwait(&signals, &signal_number);
    service.RequestShutdown();
  }).detach();
  service.WaitForShutdown();
  server->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
  // LibTorch's static destructors take seconds, and the memory they give back is the operating system's already.
  std::fflush(nullptr);
  _exit(0);
}
