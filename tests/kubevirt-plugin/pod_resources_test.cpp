// SPDX-License-Identifier: Apache-2.0
// The kubelet's pod resources over real unix sockets: a stand-in that answers, and others that do not, or
// wrongly.
#include "kubevirt-plugin/allocation/pod_resources.h"

#include <cstdlib>
#include <cstring>
#include <grpc/grpc.h>
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "tests/support/kubelet_standin/standin.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

// Never waited for: what is tested comes before it.
constexpr auto kPatience = 20s;

/// A kubelet that answers every call with the same bytes, or the same error.
class FixedKubelet {
 public:
  FixedKubelet(const fs::path& socket, std::string answer, grpc::Status status = grpc::Status::OK)
      : service_(std::move(answer), std::move(status)) {
    // Not given back: the last one to do so would wait ten seconds for a poller that still waits to write.
    grpc_init();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket.string(), grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  /// The method of the last call.
  const std::string& called() const { return service_.called; }

 private:
  struct Service : grpc::CallbackGenericService {
    Service(std::string what, grpc::Status end) : answer(std::move(what)), status(std::move(end)) {}
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
      called = context->method();
      class Reactor : public grpc::ServerGenericBidiReactor {
       public:
        explicit Reactor(const Service& service) : status_(service.status) {
          if (!status_.ok()) {
            Finish(status_);
            return;
          }
          const grpc::Slice slice(service.answer);
          answer_ = grpc::ByteBuffer(&slice, 1);
          StartWriteAndFinish(&answer_, {}, status_);
        }
        void OnDone() override { delete this; }

       private:
        grpc::Status status_;
        grpc::ByteBuffer answer_;
      };
      return new Reactor(*this);
    }
    std::string answer;
    grpc::Status status;
    std::string called;
  };
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

class PodResourcesTest : public testing::Test {
 protected:
  PodResourcesTest() { tree_.directory(fs::path(kPodResourcesSocket).parent_path()); }

  fs::path socket() const { return tree_.path() / kPodResourcesSocket; }
  Result<std::vector<vfio::PodDevice>> list(std::chrono::milliseconds deadline = kPatience) const {
    return list_pod_devices(host_, kPodResourcesSocket, deadline);
  }
  /// A socket that is bound, and listened on if there is a backlog; nothing is ever accepted.
  UniqueFd bind_socket(std::optional<int> backlog) const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = socket_address();
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_TRUE(!backlog || ::listen(fd.get(), *backlog) == 0);
    return fd;
  }
  sockaddr_un socket_address() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket().c_str(), sizeof(address.sun_path) - 1);
    return address;
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(PodResourcesTest, ReportsWhatAKubeletHasAllocated) {
  tree_.directory("plugins");
  standin::Kubelet kubelet(tree_.path() / "plugins", {.pod_resources = socket().parent_path()});
  ASSERT_TRUE(kubelet.start());
  EXPECT_THAT(must(list()), IsEmpty());
  kubelet.remember({.name = "vm-1", .resource = "nvidia.com/X", .ids = {"0000:17:00.0", "0000:b5:00.0"}});
  EXPECT_THAT(must(list()), ElementsAre(vfio::PodDevice{.name_space = "default",
                                                        .pod = "vm-1",
                                                        .container = "compute",
                                                        .resource = "nvidia.com/X",
                                                        .ids = {"0000:17:00.0", "0000:b5:00.0"},
                                                        .numa_nodes = {}}));
  kubelet.release({"0000:17:00.0", "0000:b5:00.0"});
  EXPECT_THAT(must(list()), IsEmpty());
}

TEST_F(PodResourcesTest, ThereIsNoKubelet) {
  EXPECT_THAT(must(list()), IsEmpty()) << "no socket";
  tree_.remove("var/lib/kubelet");
  EXPECT_THAT(must(list()), IsEmpty()) << "no directory";
}

TEST_F(PodResourcesTest, AKubeletThatEndedMayHaveAllocatedAnything) {
  const UniqueFd nobody_listens = bind_socket(std::nullopt);
  const auto listed = list();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Errc::unreachable);
  EXPECT_EQ(listed.error().message,
            "/var/lib/kubelet/pod-resources: connect to kubelet.sock: Connection refused");
}

TEST_F(PodResourcesTest, WaitsUntilTheDeadlineAndNoLonger) {
  const UniqueFd silent = bind_socket(1);
  const auto listed = list(50ms);
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Errc::unreachable);
  EXPECT_EQ(listed.error().message, "/var/lib/kubelet/pod-resources/kubelet.sock: no answer in 50 ms");
}

TEST_F(PodResourcesTest, DoesNotQueueBehindOthers) {
  const UniqueFd silent = bind_socket(0);
  const UniqueFd first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto address = socket_address();
  ASSERT_EQ(::connect(first.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const auto listed = list();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Errc::unreachable);
}

TEST_F(PodResourcesTest, LeavesNoThreadBehind) {
  const auto threads = [] {
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  const UniqueFd silent = bind_socket(8);
  const auto ask_thrice = [&] {
    const auto before = threads();
    for (int i = 0; i < 3; ++i) {
      if (list(20ms)) return false;
    }
    // A thread that has been joined may be on its way out of /proc yet.
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (threads() != before && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return threads() == before;
  };
  // In a process of its own: in this one, servers of other tests leave threads of gRPC's behind.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(ask_thrice() ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST_F(PodResourcesTest, CallsListByItsName) {
  const FixedKubelet kubelet(socket(), "");
  EXPECT_THAT(must(list()), IsEmpty());
  EXPECT_EQ(kubelet.called(), "/v1.PodResourcesLister/List");
}

TEST_F(PodResourcesTest, ReportsAnErrorOfTheKubelet) {
  const FixedKubelet kubelet(socket(), "",
                             {grpc::StatusCode::UNIMPLEMENTED, "unknown service v1.PodResourcesLister"});
  const auto listed = list();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Errc::failed);
  EXPECT_THAT(listed.error().message,
              HasSubstr("the kubelet refuses: unknown service v1.PodResourcesLister"));
}

TEST_F(PodResourcesTest, ReportsAnAnswerThatCannotBeRead) {
  const FixedKubelet kubelet(socket(), "\x0a\x7fshort");
  const auto listed = list();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Errc::malformed_host);
  EXPECT_EQ(listed.error().message,
            "/var/lib/kubelet/pod-resources/kubelet.sock: the kubelet's list of pods cannot be read");
}

// A pod of `size` bytes: its name is all of it, three bytes of tag and length apart.
std::string large_answer(std::size_t size) {
  const auto varint = [](std::size_t value) {
    std::string out;
    for (; value > 0x7fU; value >>= 7U) out += static_cast<char>(0x80U | (value & 0x7fU));
    return out + static_cast<char>(value);
  };
  const std::string name = "\x0a" + varint(size) + std::string(size, 'x');
  return "\x0a" + varint(name.size()) + name;
}

TEST_F(PodResourcesTest, ReadsALargeAnswer) {
  const FixedKubelet kubelet(socket(), large_answer(std::size_t{8} << 20U));
  EXPECT_THAT(must(list()), IsEmpty());
}

TEST_F(PodResourcesTest, RefusesAnAnswerThatIsTooLarge) {
  const FixedKubelet kubelet(socket(), large_answer(std::size_t{16} << 20U));
  const auto listed = list();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Errc::failed);
  EXPECT_THAT(listed.error().message, HasSubstr("larger than max"));
}

}  // namespace
}  // namespace ferry::plugin
