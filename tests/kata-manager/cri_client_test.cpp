// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/cri_client.h"

#include <fstream>

#include <gmock/gmock.h>

#include "tests/kata-manager/containerd_daemon.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(CriClient, AsksRealDaemons) {
  if (test::containerd_binaries().empty()) GTEST_SKIP() << "no containerd is named by FERRY_CONTAINERDS";
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    const test::ScratchDirectory scratch;
    test::ContainerdDaemon daemon(binary, scratch.path());
    const RuntimeHandler ours{.name = "kata-a",
                              .shim = "/nowhere/containerd-shim-kata-v2",
                              .configuration = "/nowhere/a.toml",
                              .pod_annotations = {},
                              .container_annotations = {}};
    std::ofstream(daemon.main()) << daemon.own_settings() << R"(
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-a]
runtime_type = ")" << ours.runtime_type(binary.release)
                                 << R"("
runtime_path = "/nowhere/containerd-shim-kata-v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-a.options]
ConfigPath = "/nowhere/a.toml"
)";
    ASSERT_TRUE(daemon.start()) << daemon.log();
    const HostFs host("/");
    CriClient client(host, daemon.socket());
    const auto state = test::must(client.state());
    EXPECT_EQ(state.name, "containerd");
    EXPECT_EQ(test::must(ContainerdRelease::parse(state.version)), binary.release);
    EXPECT_TRUE(state.reports_handlers());
    EXPECT_TRUE(state.has("runc"));
    EXPECT_TRUE(state.knows(ours));
    RuntimeHandler other = ours;
    other.configuration = "/nowhere/b.toml";
    EXPECT_FALSE(state.knows(other));
    other = ours;
    other.pod_annotations = {"io.katacontainers.*"};
    EXPECT_FALSE(state.knows(other)) << "they would not reach the shim";
    EXPECT_FALSE(state.has("kata-b"));
    EXPECT_THAT(test::must(client.pods()), testing::IsEmpty());
    daemon.stop();
    const auto gone = client.state();
    ASSERT_FALSE(gone.has_value());
    EXPECT_THAT(gone.error().message, HasSubstr(daemon.socket().filename().string()));
  }
}

TEST(CriClient, HasContainerdsReasonForHavingNoCri) {
  if (test::containerd_binaries().empty()) GTEST_SKIP() << "no containerd is named by FERRY_CONTAINERDS";
  const HostFs host("/");
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    const test::ScratchDirectory scratch;
    test::ContainerdDaemon daemon(binary, scratch.path());
    const auto why = [&](const std::string& settings) -> Error {
      std::ofstream(daemon.main()) << settings;
      EXPECT_TRUE(daemon.start()) << daemon.log();
      const auto state = CriClient(host, daemon.socket()).state();
      daemon.stop();
      return state ? Error{} : state.error();
    };
    const auto spec =
        why(daemon.own_settings() +
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
            "runtime_type = \"io.containerd.runc.v2\"\nbase_runtime_spec = \"/no/such/spec\"\n");
    EXPECT_EQ(spec.code, make_error_code(Errc::unsupported));
    EXPECT_THAT(spec.message, testing::AllOf(HasSubstr("it runs without CRI: "), HasSubstr("/no/such/spec")));
    const auto off = why("disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n" + daemon.own_settings());
    EXPECT_EQ(off.code, make_error_code(Errc::unsupported));
    EXPECT_THAT(off.message, HasSubstr("its CRI plugin is disabled"));
  }
}

TEST(CriClient, ReadsWhatContainerdSaysOfItsRuntimes) {
  const auto all = test::must(runtimes_of_info(R"({"containerd": {"runtimes": {
      "kata": {"runtimeType": "io.containerd.kata.v2", "runtimePath": "/shim", "snapshotter": "nydus",
               "PodAnnotations": ["a.*", "b.*"], "ContainerAnnotations": null,
               "options": {"ConfigPath": "/c.toml"}},
      "runc": {"runtimeType": "io.containerd.runc.v2", "snapshotter": "", "options": null}}}})"));
  ASSERT_TRUE(all);
  EXPECT_THAT(*all, testing::ElementsAre(KnownRuntime{.name = "kata",
                                                      .type = "io.containerd.kata.v2",
                                                      .shim = "/shim",
                                                      .configuration = "/c.toml",
                                                      .snapshotter = "nydus",
                                                      .pod_annotations = {{"a.*", "b.*"}},
                                                      .container_annotations = {{}}},
                                         KnownRuntime{.name = "runc",
                                                      .type = "io.containerd.runc.v2",
                                                      .shim = {},
                                                      .configuration = {},
                                                      .snapshotter = ""}));
  for (const char* none : {"{}", "[]", "1", R"({"containerd": []})", R"({"containerd": {"runtimes": 1}})"})
    EXPECT_FALSE(test::must(runtimes_of_info(none)).has_value()) << none;
  for (const char* broken : {"", "{", R"({"containerd": {"runtimes": {"kata": 1}}})"})
    EXPECT_FALSE(runtimes_of_info(broken)) << broken;
  // What is of another type says nothing, and is nobody's.
  const auto odd = test::must(runtimes_of_info(
      R"({"containerd": {"runtimes": {"kata": {"runtimeType": 1, "PodAnnotations": [1], "options": {"ConfigPath": 2}}}}})"));
  EXPECT_EQ(odd.value().front().type, "");
  EXPECT_EQ(odd.value().front().configuration, "");
}

}  // namespace
}  // namespace ferry::kata
