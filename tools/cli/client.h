// Calls to the controller, with a deadline each and messages for people.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sluice/v1/controller.grpc.pb.h"

namespace sluice::cli {

class Client {
 public:
  // `address`: host:port or unix:path. Connects at the first call.
  explicit Client(const std::string& address);

  absl::StatusOr<v1::SubmitJobResponse> Submit(const v1::SubmitJobRequest& request);
  absl::StatusOr<v1::Job> Get(const std::string& job_id);
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::Job> Cancel(const std::string& job_id, const std::string& reason);
  absl::StatusOr<v1::ListWorkersResponse> Workers();
  absl::StatusOr<v1::ServerInfo> ServerInfo();

  // Gives every event after `after_resource_version` to `on_update`, until the job is final; returns it. A stream that
  // breaks is taken up again where it was, for as long as the controller can be reached again within a minute.
  absl::StatusOr<v1::Job> Watch(const std::string& job_id, int64_t after_resource_version,
                                const std::function<void(const v1::WatchJobResponse&)>& on_update);

  // Gives the events that there are to `on_event`, and returns the job as it is after them.
  absl::StatusOr<v1::Job> History(const std::string& job_id, const std::function<void(const v1::JobEvent&)>& on_event);

  // Gives the log's pieces to `on_data` until its end (with `follow`, until the job is final).
  absl::Status Logs(const v1::GetJobLogsRequest& request, const std::function<void(const std::string&)>& on_data);

 private:
  template <typename Request, typename Response>
  using Method = grpc::Status (v1::ControllerService::StubInterface::*)(grpc::ClientContext*, const Request&,
                                                                        Response*);

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Method<Request, Response> method, const Request& request);
  absl::Status Explain(const grpc::Status& status) const;

  const std::string address_;
  const std::unique_ptr<v1::ControllerService::StubInterface> stub_;
};

}  // namespace sluice::cli
