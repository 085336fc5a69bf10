// SPDX-License-Identifier: Apache-2.0
// As much of NVIDIA's KubeVirt device plugin as a kubelet remembers of it when it has gone: a resource with
// its IDs, and pods that have some of them.
//
// usage: former-plugin DIRECTORY NAME ID=GROUP...: "nvidia.com/NAME", until SIGTERM
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "deviceplugin.grpc.pb.h"

namespace {

class Plugin final : public v1beta1::DevicePlugin::Service {
 public:
  Plugin(std::string name, std::map<std::string, std::string> groups)
      : name_(std::move(name)), groups_(std::move(groups)) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* /*context*/, const v1beta1::Empty* /*request*/,
                                      v1beta1::DevicePluginOptions* /*response*/) override {
    return grpc::Status::OK;
  }
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty* /*request*/,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    v1beta1::ListAndWatchResponse list;
    for (const auto& [id, group] : groups_) {
      auto& device = *list.add_devices();
      device.set_id(id);
      device.set_health("Healthy");
    }
    writer->Write(list);
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return grpc::Status::OK;
  }
  grpc::Status Allocate(grpc::ServerContext* /*context*/, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    for (const auto& asked : request->container_requests()) {
      auto& container = *response->add_container_responses();
      std::string ids;
      add_node(container, "vfio");
      for (const std::string& id : asked.devices_ids()) {
        ids += (ids.empty() ? "" : ",") + id;
        add_node(container, groups_.at(id));
      }
      (*container.mutable_envs())["PCI_RESOURCE_NVIDIA_COM_" + name_] = ids;
    }
    return grpc::Status::OK;
  }

 private:
  static void add_node(v1beta1::ContainerAllocateResponse& container, const std::string& name) {
    auto& device = *container.add_devices();
    device.set_container_path("/dev/vfio/" + name);
    device.set_host_path("/dev/vfio/" + name);
    device.set_permissions("mrw");
  }

  const std::string name_;
  const std::map<std::string, std::string> groups_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::filesystem::path directory = argv[1];
  const std::string name = argv[2];
  std::map<std::string, std::string> groups;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    groups[word.substr(0, equals)] = word.substr(equals + 1);
  }
  Plugin plugin(name, std::move(groups));
  const std::string endpoint = "kubevirt-" + name + ".sock";
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + (directory / endpoint).string(), grpc::InsecureServerCredentials());
  builder.RegisterService(&plugin);
  const auto server = builder.BuildAndStart();
  const auto kubelet = v1beta1::Registration::NewStub(grpc::CreateChannel(
      "unix:" + (directory / "kubelet.sock").string(), grpc::InsecureChannelCredentials()));
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(endpoint);
  request.set_resource_name("nvidia.com/" + name);
  grpc::ClientContext context;
  v1beta1::Empty empty;
  if (const auto status = kubelet->Register(&context, request, &empty); !status.ok()) {
    std::cerr << status.error_message() << "\n";
    return 1;
  }
  int signal = 0;
  sigwait(&signals, &signal);
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
  return 0;
}
