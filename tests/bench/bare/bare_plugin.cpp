// SPDX-License-Identifier: Apache-2.0
// The least that a device plugin can be, made of gRPC's C++ classes as anybody would: what `ferry plugin` is
// held against. It knows no host: a table of devices comes with the command line, all of them Healthy for
// ever.
//
// usage: bare_plugin DIRECTORY RESOURCES DEVICES: so many devices, dealt out over nvidia.com/BARE_0 and on
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "deviceplugin.grpc.pb.h"

namespace {

class Plugin final : public v1beta1::DevicePlugin::Service {
 public:
  explicit Plugin(std::vector<std::string> ids) : ids_(std::move(ids)) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* /*context*/, const v1beta1::Empty* /*request*/,
                                      v1beta1::DevicePluginOptions* /*response*/) override {
    return grpc::Status::OK;
  }
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty* /*request*/,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    v1beta1::ListAndWatchResponse list;
    for (const std::string& id : ids_) {
      auto& device = *list.add_devices();
      device.set_id(id);
      device.set_health("Healthy");
    }
    writer->Write(list);
    while (!context->IsCancelled()) {
      timespec pause{.tv_sec = 0, .tv_nsec = 100'000'000};
      ::nanosleep(&pause, nullptr);
    }
    return grpc::Status::OK;
  }
  grpc::Status Allocate(grpc::ServerContext* /*context*/, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    for (const auto& asked : request->container_requests()) {
      auto& container = *response->add_container_responses();
      std::string value;
      for (const std::string& id : asked.devices_ids()) value += (value.empty() ? "" : ",") + id;
      (*container.mutable_envs())["PCI_RESOURCE_NVIDIA_COM_BARE"] = value;
      for (const char* const node : {"/dev/vfio/vfio", "/dev/vfio/1"}) {
        auto& device = *container.add_devices();
        device.set_container_path(node);
        device.set_host_path(node);
        device.set_permissions("mrw");
      }
    }
    return grpc::Status::OK;
  }

 private:
  const std::vector<std::string> ids_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::filesystem::path directory = argv[1];
  const std::size_t resources = std::stoul(argv[2]);
  std::vector<std::vector<std::string>> ids(resources);
  for (std::size_t i = 0; i < std::stoul(argv[3]); ++i)
    ids[i % resources].push_back("device-" + std::to_string(i));
  std::vector<std::unique_ptr<Plugin>> plugins;
  std::vector<std::unique_ptr<grpc::Server>> servers;
  for (std::size_t i = 0; i < resources; ++i) {
    plugins.push_back(std::make_unique<Plugin>(ids[i]));
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + (directory / ("bare-" + std::to_string(i) + ".sock")).string(),
                             grpc::InsecureServerCredentials());
    builder.RegisterService(plugins.back().get());
    servers.push_back(builder.BuildAndStart());
  }
  const auto channel = grpc::CreateChannel("unix:" + (directory / "kubelet.sock").string(),
                                           grpc::InsecureChannelCredentials());
  const auto kubelet = v1beta1::Registration::NewStub(channel);
  for (std::size_t i = 0; i < resources; ++i) {
    v1beta1::RegisterRequest request;
    request.set_version("v1beta1");
    request.set_endpoint("bare-" + std::to_string(i) + ".sock");
    request.set_resource_name("nvidia.com/BARE_" + std::to_string(i));
    grpc::ClientContext context;
    v1beta1::Empty empty;
    if (const auto status = kubelet->Register(&context, request, &empty); !status.ok()) {
      std::cerr << status.error_message() << "\n";
      return 1;
    }
  }
  int signal = 0;
  sigwait(&signals, &signal);
  for (const auto& server : servers) server->Shutdown(std::chrono::system_clock::now());
  for (const auto& server : servers) server->Wait();
  return 0;
}
