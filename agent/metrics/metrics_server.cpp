// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metrics_server.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "api/files.h"
#include "dra/checkpoint.h"
#include "hostfs/locks.h"

namespace ferry::agent {

MetricsServer::MetricsServer(EventLoop& loop, MetricsListener::Settings settings,
                             std::function<std::string()> metrics, std::chrono::milliseconds between_tries)
    : loop_(loop),
      settings_(std::move(settings)),
      metrics_(std::move(metrics)),
      between_tries_(between_tries) {}

MetricsServer::~MetricsServer() {
  loop_.cancel(again_);
}

Result<> MetricsServer::begin() {
  auto opened = MetricsListener::open(loop_, settings_, metrics_);
  if (opened) {
    listener_ = std::move(*opened);
    spdlog::info("metrics are shown on {}", settings_.address.text());
    return {};
  }
  if (opened.error().code == make_error_code(Errc::usage)) return fail(std::move(opened).error());
  if (std::exchange(logged_, opened.error().message) != opened.error().message)
    spdlog::error("metrics are not shown, and that is tried again: {}", opened.error().message);
  again_ = loop_.at(EventLoop::Clock::now() + between_tries_, [this] { static_cast<void>(begin()); });
  return {};
}

namespace {

template <typename Content>
void read_into(MeetingFile<Content>& out, const HostFs& host, const char* file,
               Result<Content> (*read)(std::string_view)) {
  const auto text = host.read_file(file);
  if (!text && is_gone(text.error())) {
    out = {};
    return;
  }
  auto content = text ? read(*text) : Result<Content>(fail(text.error()));
  const bool broken = !content;
  if (broken && !out.broken) spdlog::warn("metrics: {}", content.error().message);
  out = {};
  out.broken = broken;
  if (!broken) out.content = std::move(*content);
}

/// Each phase has a number; absent: there is no checkpoint, or it cannot be read.
std::optional<std::map<std::string, std::size_t>> count_claims(const HostFs& host) {
  const auto content = host.read_file(api::kCheckpointFile, HostFs::Links::refused);
  if (!content) return std::nullopt;
  const auto checkpoint = dra::read_checkpoint(*content);
  if (!checkpoint) return std::nullopt;
  std::map<std::string, std::size_t> out;
  for (const dra::CheckpointPhase phase :
       {dra::CheckpointPhase::preparing, dra::CheckpointPhase::prepared, dra::CheckpointPhase::unpreparing})
    out[std::string(dra::text(phase))] = 0;
  for (const dra::CheckpointClaim& claim : checkpoint->claims) ++out[std::string(dra::text(claim.phase))];
  return out;
}

}  // namespace

/// State that outlives NodeMetrics together with a thread whose read hangs.
struct NodeMetrics::Mailbox {
  explicit Mailbox(std::filesystem::path root) : host(std::move(root)) {}
  const HostFs host;
  std::mutex mutex;
  NodeMetrics* reader = nullptr;  ///< guarded by `mutex`; null: NodeMetrics is gone
};

NodeMetrics::NodeMetrics(EventLoop& loop, const HostFs& host, std::function<kube::RequestCounts()> requests,
                         Vmis vmis, NodeLabels labels, Pulls pulls, std::chrono::milliseconds poll_period)
    : loop_(loop),
      host_(host),
      requests_(std::move(requests)),
      vmis_(std::move(vmis)),
      labels_(std::move(labels)),
      pulls_(std::move(pulls)),
      poll_period_(poll_period),
      mailbox_(std::make_shared<Mailbox>(host.root())) {
  mailbox_->reader = this;
}

NodeMetrics::~NodeMetrics() {
  loop_.cancel(timer_);
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->reader = nullptr;
}

void NodeMetrics::begin() {
  host_changed();
  look();
}

void NodeMetrics::host_changed() {
  read_into<api::HostStatus>(snapshot_.host, host_, api::kStatusFile, api::read_host_status);
  read_into<api::AdvertisedResources>(snapshot_.advertised, host_, api::kAdvertisedFile,
                                      api::read_advertised_resources);
  if (snapshot_.host.content) history_.saw(*snapshot_.host.content, ChangeHistory::Clock::now());
}

void NodeMetrics::look() {
  std::vector<vfio::PciAddress> gpus;
  if (snapshot_.host.content) {
    for (const api::AcceleratorStatus& gpu : snapshot_.host.content->accelerators) {
      if (gpu.counts_as_gpu()) gpus.push_back(gpu.address);
    }
  }
  try {
    // Detached: a join would wait for the kernel.
    std::thread([mailbox = mailbox_, gpus = std::move(gpus)] {
      auto facts = read_gpu_facts(mailbox->host, gpus);
      const std::lock_guard lock(mailbox->mutex);
      if (mailbox->reader == nullptr) return;
      mailbox->reader->loop_.post([mailbox, facts = std::move(facts)]() mutable {
        // The loop's thread runs this, and also destroys the reader.
        if (mailbox->reader != nullptr) mailbox->reader->looked(std::move(facts));
      });
    }).detach();
  } catch (const std::system_error& error) {
    spdlog::warn("metrics: sysfs is not read now: {}", error.what());
    timer_ = loop_.at(EventLoop::Clock::now() + poll_period_, [this] { look(); });
  }
}

void NodeMetrics::looked(std::vector<GpuFacts> facts) {
  snapshot_.facts = std::move(facts);
  snapshot_.looked_at = std::chrono::system_clock::now();
  timer_ = loop_.at(EventLoop::Clock::now() + poll_period_, [this] { look(); });
}

std::string NodeMetrics::text() const {
  MetricsSnapshot snapshot = snapshot_;
  for (const auto& [process, liveness] :
       {std::pair("hostd", api::kHostdLiveness), {"plugin", api::kPluginLiveness}})
    if (const auto runs = is_present(host_, liveness)) snapshot.runs[process] = *runs;
  snapshot.changes = history_.counts();
  snapshot.requests = requests_();
  snapshot.vmis = vmis_();
  snapshot.node_labels = labels_();
  snapshot.pulls = pulls_();
  snapshot.claims = count_claims(host_);
  return metrics_text(metric_families(snapshot));
}

}  // namespace ferry::agent
