// SPDX-License-Identifier: Apache-2.0
// What the stand-in sees that a kubelet would not.
#include <future>
#include <memory>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "deviceplugin.grpc.pb.h"
#include "tests/support/kubelet_standin/standin.h"
#include "tests/support/scratch_directory.h"

namespace {

class ListsOneTwice final : public v1beta1::DevicePlugin::Service {
  grpc::Status GetDevicePluginOptions(grpc::ServerContext* /*context*/, const v1beta1::Empty* /*request*/,
                                      v1beta1::DevicePluginOptions* /*response*/) override {
    return grpc::Status::OK;
  }
  grpc::Status ListAndWatch(grpc::ServerContext* /*context*/, const v1beta1::Empty* /*request*/,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* lists) override {
    v1beta1::ListAndWatchResponse list;
    for (const char* const id : {"one", "other", "one"}) list.add_devices()->set_id(id);
    lists->Write(list);
    return grpc::Status::OK;
  }
};

TEST(KubeletStandin, ComplainsOfAnIdThatOneListHasTwice) {
  const ferry::test::ScratchDirectory tree;
  ListsOneTwice service;
  std::promise<std::string> fault;
  standin::Kubelet kubelet(tree.path(),
                           {.on_fault = [&fault](const std::string& said) { fault.set_value(said); }});
  ASSERT_TRUE(kubelet.start());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + (tree.path() / "plugin.sock").string(),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);

  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint("plugin.sock");
  request.set_resource_name("example.com/card");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1beta1::Empty taken;
  const auto stub = v1beta1::Registration::NewStub(grpc::CreateChannel(
      "unix:" + (tree.path() / "kubelet.sock").string(), grpc::InsecureChannelCredentials()));
  ASSERT_TRUE(stub->Register(&context, request, &taken).ok());
  auto said = fault.get_future();
  ASSERT_EQ(said.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(said.get(), "example.com/card lists one twice");
}

}  // namespace
