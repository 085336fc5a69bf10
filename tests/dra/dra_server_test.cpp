// SPDX-License-Identifier: Apache-2.0
// The server as a kubelet meets it: over gRPC, at its sockets.
#include "dra/server/dra_server.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "common/rpc/rpc_queue.h"
#include "dra.grpc.pb.h"
#include "dra_health.grpc.pb.h"
#include "pluginregistration.grpc.pb.h"
#include "tests/dra/claims_fixture.h"
#include "tests/kubevirt-plugin/plugin_caller.h"

namespace ferry::dra {
namespace {

namespace wire = ::k8s::io::kubelet::pkg::apis::dra::v1;
using plugin_test::Caller;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;

constexpr const char* kV1 = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/";
constexpr const char* kV1beta1 = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/";

class DraServerTest : public test::ClaimsFixture {
 protected:
  DraServerTest() { root.directory(options.registry_folder); }
  void TearDown() override { stop(); }

  Result<> open() {
    start();
    auto opened = DraServer::open({.loop = *loop, .queue = queue, .host = host, .driver = *driver}, options,
                                  {.registered = [this] { ++registered; },
                                   .refused =
                                       [this](const Error& error) {
                                         const std::scoped_lock lock(mutex);
                                         refusal = error.text();
                                       },
                                   .failed = [this](const Error&) { ++failed; }});
    if (!opened) return fail(std::move(opened).error());
    server = std::move(*opened);
    return {};
  }
  void serve() {
    must(open());
    thread = std::jthread([this](const std::stop_token& token) { loop->run(token); });
  }
  void stop() {
    if (thread.joinable()) {
      thread.request_stop();
      thread.join();
    }
    server.reset();
    driver.reset();
  }

  static bool soon(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }
  /// Runs `job` in the loop, and waits for it.
  void in_loop(const std::function<void()>& job) const {
    std::promise<void> done;
    loop->post([&] {
      job();
      done.set_value();
    });
    done.get_future().wait();
  }

  std::filesystem::path plugin_socket() const { return root.path() / options.plugin_folder / "dra.sock"; }
  std::filesystem::path registration_socket() const {
    return root.path() / options.registry_folder / "gpu-ferry.io-reg.sock";
  }

  /// Calls a method by its path, whatever its stub is.
  template <typename Request, typename Response>
  static grpc::Status call(const Caller& caller, const std::string& method, const Request& request,
                           Response& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const grpc::Slice slice(request.SerializeAsString());
    const grpc::ByteBuffer bytes(&slice, 1);
    grpc::GenericStub stub(caller.channel());
    grpc::CompletionQueue completions;
    const auto pending = stub.PrepareUnaryCall(&context, method, bytes, &completions);
    grpc::ByteBuffer answer;
    grpc::Status status;
    pending->StartCall();
    pending->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    completions.Next(&tag, &ok);
    std::vector<grpc::Slice> slices;
    std::string text;
    if (status.ok() && answer.Dump(&slices).ok())
      for (const grpc::Slice& part : slices)
        text.append(reinterpret_cast<const char*>(part.begin()), part.size());
    EXPECT_TRUE(response.ParseFromString(text));
    return status;
  }

  template <typename Request>
  static Request request_for(const std::vector<ClaimKey>& claims) {
    Request request;
    for (const ClaimKey& key : claims) {
      wire::Claim& claim = *request.add_claims();
      claim.set_namespace_(key.space);
      claim.set_uid(key.uid);
      claim.set_name(key.name);
    }
    return request;
  }

  DraServer::Settings options;
  RpcQueue queue;
  std::atomic<int> registered = 0;
  std::atomic<int> failed = 0;
  std::mutex mutex;
  std::string refusal;
  std::unique_ptr<DraServer> server;
  std::jthread thread;
};

TEST_F(DraServerTest, TellsTheKubeletWhatItServes) {
  serve();
  const Caller caller(registration_socket());
  using Registration = pluginregistration::Registration::Stub;
  pluginregistration::PluginInfo info;
  ASSERT_TRUE(caller.ask(&Registration::GetInfo, pluginregistration::InfoRequest(), info).ok());
  EXPECT_EQ(info.type(), "DRAPlugin");
  EXPECT_EQ(info.name(), "gpu-ferry.io");
  EXPECT_EQ(info.endpoint(), "/var/lib/kubelet/plugins/gpu-ferry.io/dra.sock");
  EXPECT_THAT(info.supported_versions(), ElementsAre("v1.DRAPlugin", "v1beta1.DRAPlugin",
                                                     "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"));

  pluginregistration::RegistrationStatus status;
  pluginregistration::RegistrationStatusResponse noted;
  status.set_plugin_registered(true);
  ASSERT_TRUE(caller.ask(&Registration::NotifyRegistrationStatus, status, noted).ok());
  EXPECT_TRUE(soon([&] { return registered == 1; }));

  status.set_plugin_registered(false);
  status.set_error("a name twice");
  ASSERT_TRUE(caller.ask(&Registration::NotifyRegistrationStatus, status, noted).ok());
  EXPECT_TRUE(soon([&] {
    const std::scoped_lock lock(mutex);
    return !refusal.empty();
  }));
  EXPECT_THAT(refusal, HasSubstr("the kubelet does not take gpu-ferry.io: a name twice"));
}

TEST_F(DraServerTest, ServesBothVersions) {
  serve();
  const Caller caller(plugin_socket());
  for (const char* const service : {kV1, kV1beta1}) {
    const ClaimKey good = allocate("render-a", {{"card", kWhole}});
    const ClaimKey missing = key("render-b", "b-uid");
    wire::NodePrepareResourcesResponse prepared;
    const auto request = request_for<wire::NodePrepareResourcesRequest>({good, missing});
    const auto status = call(caller, std::string(service) + "NodePrepareResources", request, prepared);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_THAT(prepared.claims(), SizeIs(2));
    const auto& claim = prepared.claims().at(good.uid);
    EXPECT_EQ(claim.error(), "");
    ASSERT_THAT(claim.devices(), SizeIs(1));
    EXPECT_THAT(claim.devices(0).request_names(), ElementsAre("card"));
    EXPECT_EQ(claim.devices(0).pool_name(), "node7/gpu-ferry");
    EXPECT_EQ(claim.devices(0).device_name(), kWhole);
    EXPECT_THAT(claim.devices(0).cdi_device_ids(),
                ElementsAre(api::claim_cdi_id(good.uid, kWhole), api::metadata_cdi_id(good.uid, "card")));
    EXPECT_FALSE(claim.devices(0).has_share_id());
    EXPECT_THAT(prepared.claims().at(missing.uid).error(), HasSubstr("there is no such ResourceClaim"));

    wire::NodeUnprepareResourcesResponse undone;
    const auto undo = request_for<wire::NodeUnprepareResourcesRequest>({good, missing});
    ASSERT_TRUE(call(caller, std::string(service) + "NodeUnprepareResources", undo, undone).ok());
    ASSERT_THAT(undone.claims(), SizeIs(2));
    for (const auto& [uid, answer] : undone.claims()) EXPECT_EQ(answer.error(), "") << uid;
    EXPECT_THAT(on_disk().claims, IsEmpty());
  }
}

TEST_F(DraServerTest, AnswersByItsStubs) {
  serve();
  const Caller caller(plugin_socket());
  using Plugin = wire::DRAPlugin::Stub;
  wire::NodePrepareResourcesResponse prepared;
  EXPECT_TRUE(caller.ask(&Plugin::NodePrepareResources, wire::NodePrepareResourcesRequest(), prepared).ok());
  EXPECT_THAT(prepared.claims(), IsEmpty());
}

TEST_F(DraServerTest, RefusesWhatItCannotRead) {
  serve();
  const Caller caller(plugin_socket());
  for (const char* const method : {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
                                   "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
                                   "/pluginregistration.Registration/NotifyRegistrationStatus"})
    EXPECT_EQ(caller.send(method, "\xff\xff\xff").error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
  EXPECT_EQ(caller.send("/k8s.io.kubelet.pkg.apis.dra.v2.DRAPlugin/NodePrepareResources", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  wire::NodePrepareResourcesResponse prepared;
  const auto request =
      request_for<wire::NodePrepareResourcesRequest>({{.uid = "../../x", .space = "", .name = ""}});
  ASSERT_TRUE(call(caller, std::string(kV1) + "NodePrepareResources", request, prepared).ok());
  EXPECT_NE(prepared.claims().at("../../x").error(), "");
}

TEST_F(DraServerTest, SendsTheHealthOfDevices) {
  options.health_interval = 50ms;
  serve();
  const Caller caller(plugin_socket());
  ::v1alpha1::DRAResourceHealth::Stub stub(caller.channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = stub.NodeWatchResources(&context, ::v1alpha1::NodeWatchResourcesRequest());
  const auto is = [&](const std::string& message) {
    in_loop([&] { server->set_health({{.pool = "node7/gpu-ferry", .device = kWhole, .message = message}}); });
  };
  is("");
  ::v1alpha1::NodeWatchResourcesResponse message;
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_THAT(message.devices(), SizeIs(1));
  EXPECT_EQ(message.devices(0).device().pool_name(), "node7/gpu-ferry");
  EXPECT_EQ(message.devices(0).device().device_name(), kWhole);
  EXPECT_EQ(message.devices(0).health(), ::v1alpha1::HEALTHY);
  EXPECT_EQ(message.devices(0).health_check_timeout_seconds(), 1);
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  EXPECT_NEAR(static_cast<double>(message.devices(0).last_updated_time()), static_cast<double>(now.count()),
              20);
  ASSERT_TRUE(stream->Read(&message)) << "again after the interval";
  EXPECT_EQ(message.devices(0).health(), ::v1alpha1::HEALTHY);
  is("fatal PCIe errors");
  do {
    ASSERT_TRUE(stream->Read(&message));
  } while (message.devices(0).health() == ::v1alpha1::HEALTHY);
  EXPECT_EQ(message.devices(0).health(), ::v1alpha1::UNHEALTHY);
  EXPECT_EQ(message.devices(0).message(), "fatal PCIe errors");
  stop();
  while (stream->Read(&message)) {
  }
  EXPECT_TRUE(stream->Finish().ok()) << "the end of the plugin ends the stream";
}

TEST_F(DraServerTest, ServesBothVersionsOfHealth) {
  using Message = ::v1alpha1::NodeWatchResourcesResponse;
  serve();
  in_loop([&] { server->set_health({{.pool = "node7/gpu-ferry", .device = kWhole}}); });
  const Caller caller(plugin_socket());
  for (const char* const path :
       {"/v1.DRAResourceHealth/NodeWatchResources", "/v1alpha1.DRAResourceHealth/NodeWatchResources"}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    // There are stubs of one version alone.
    const grpc::internal::RpcMethod method(path, grpc::internal::RpcMethod::SERVER_STREAMING);
    const std::unique_ptr<grpc::ClientReader<Message>> stream(
        grpc::internal::ClientReaderFactory<Message>::Create(caller.channel().get(), method, &context,
                                                             ::v1alpha1::NodeWatchResourcesRequest()));
    Message message;
    ASSERT_TRUE(stream->Read(&message)) << path;
    ASSERT_THAT(message.devices(), SizeIs(1));
    EXPECT_EQ(message.devices(0).device().device_name(), kWhole);
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(DraServerTest, ItsEndAnswersCallsInProgress) {
  serve();
  hostd->answer_by([this](const api::ClaimRequest&) -> std::optional<test::FakeHostd::Answer> {
    gate.wait();
    return std::nullopt;
  });
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  auto status = std::async(std::launch::async, [&] {
    const Caller caller(plugin_socket());
    wire::NodePrepareResourcesResponse prepared;
    const auto request = request_for<wire::NodePrepareResourcesRequest>({claim});
    return call(caller, std::string(kV1) + "NodePrepareResources", request, prepared);
  });
  ASSERT_TRUE(soon([&] { return !hostd->requests().empty(); }));
  thread.request_stop();
  thread.join();
  server.reset();
  const auto ended = status.get();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE) << ended.error_message();
  EXPECT_FALSE(std::filesystem::exists(plugin_socket()));
  EXPECT_FALSE(std::filesystem::exists(registration_socket()));
  gate.open();
  EXPECT_TRUE(run_until([&] { return driver->checkpoint().claims.at(0).phase == CheckpointPhase::prepared; }))
      << "the answer of the driver reaches no server";
}

TEST_F(DraServerTest, MakesARemovedSocketAgain) {
  serve();
  for (const auto& socket : {plugin_socket(), registration_socket()}) {
    std::filesystem::remove(socket);
    EXPECT_TRUE(soon([&] { return std::filesystem::exists(socket); })) << socket;
  }
  wire::NodePrepareResourcesResponse prepared;
  EXPECT_TRUE(call(Caller(plugin_socket()), std::string(kV1) + "NodePrepareResources",
                   wire::NodePrepareResourcesRequest(), prepared)
                  .ok());
  std::filesystem::remove_all(root.path() / options.registry_folder);
  EXPECT_TRUE(soon([&] { return failed > 0; }));
}

TEST_F(DraServerTest, NeedsTheFolderOfTheKubelet) {
  root.remove(options.registry_folder);
  const auto opened = open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::not_found);
  EXPECT_THAT(opened.error().message, HasSubstr("var/lib/kubelet/plugins_registry does not exist"));
}

TEST_F(DraServerTest, RefusesPathsThatNoKubeletCanConnectTo) {
  options.registry_folder = std::filesystem::path("var") / std::string(70, 'k') / "plugins_registry";
  root.directory(options.registry_folder);
  options.pod_uid = "0f3b1c2e-8a77-4f0e-9d53-6a1f0b7c1e22";
  const auto opened = open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::invalid_config);
  EXPECT_THAT(opened.error().message, HasSubstr("the path has 131 bytes, and that of a socket may have 107"));
}

TEST_F(DraServerTest, RemovesSocketsThatFormerPodsHaveLeft) {
  const auto leave = [&](const std::filesystem::path& path, bool served) {
    const std::filesystem::path socket = root.path() / path;
    std::filesystem::create_directories(socket.parent_path());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    if (served) {
      EXPECT_EQ(::listen(fd.get(), 1), 0);
    }
    return fd;
  };
  options.pod_uid = "new";
  leave(options.registry_folder / "gpu-ferry.io-old-reg.sock", false);
  leave(options.plugin_folder / "dra-old.sock", false);
  leave(options.registry_folder / "other.example.com-reg.sock", false);
  const UniqueFd present = leave(options.registry_folder / "gpu-ferry.io-present-reg.sock", true);
  serve();
  EXPECT_THAT(names_in(options.registry_folder),
              ElementsAre("gpu-ferry.io-new-reg.sock", "gpu-ferry.io-present-reg.sock",
                          "other.example.com-reg.sock"));
  EXPECT_THAT(names_in(options.plugin_folder), ElementsAre("dra-new.sock"));
}

TEST(DraSocketNames, HaveThePodsUid) {
  const SocketNames fixed = socket_names("/var/lib/kubelet/plugins_registry", "");
  EXPECT_EQ(fixed.plugin, "dra.sock");
  EXPECT_EQ(fixed.registration, "gpu-ferry.io-reg.sock");
  constexpr const char* kUid = "0f3b1c2e-8a77-4f0e-9d53-6a1f0b7c1e22";
  const SocketNames of_pod = socket_names("/var/lib/kubelet/plugins_registry", kUid);
  EXPECT_EQ(of_pod.plugin, std::string("dra-") + kUid + ".sock");
  EXPECT_EQ(of_pod.registration, std::string("gpu-ferry.io-") + kUid + "-reg.sock");
  const std::string deep = "/" + std::string(60, 'k') + "/plugins_registry";
  const SocketNames hashed = socket_names(deep, kUid);
  EXPECT_EQ(hashed.registration.size(), std::string("gpu-ferry.io-0123456789abcdef-reg.sock").size());
  EXPECT_NE(hashed.registration, socket_names(deep, "another uid of at least the same length").registration);
}

}  // namespace
}  // namespace ferry::dra
