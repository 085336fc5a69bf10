// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <sys/signalfd.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "cli/output/claims_report.h"
#include "cli/output/document.h"
#include "cli/output/explanation.h"
#include "cli/output/status_document.h"
#include "cli/output/status_text.h"
#include "cli/output/text_output.h"
#include "cli/session.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/process/signals.h"
#include "common/result.h"
#include "common/text/text.h"
#include "hostfs/directory_watch.h"
#include "vfio/pci/uevents.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using Clock = EventLoop::Clock;

// Binding one group makes a handful of events.
constexpr auto kSettle = std::chrono::milliseconds(100);
// No event announces that a process opens or closes a device.
constexpr auto kRescan = std::chrono::seconds(10);

Result<VerbOutput> report_of(const Session& session) {
  const bool rows = is_text(session.output);
  const bool wide = session.output == OutputFormat::wide;
  std::string fault;
  const vfio::AcceleratorRules rules = node_rules(session, &fault);
  const auto snapshot = snapshot_node(session, rules, wide || !rows);
  if (!snapshot) return fail(snapshot.error());
  host::NodeDescription description = host::describe_node(*snapshot, rules, model_names(session));
  // hostd reports the fault, too, once it has looked.
  if (!fault.empty() && !description.error) description.notes.push_back(fault);
  const auto claims = read_claims(*session.host);
  VerbOutput shown;
  if (rows) {
    shown.text =
        status_text(description, text_output(session), wide) + claims_text(claims, text_output(session));
    shown.tinted = true;
  } else {
    shown.document = to_json(description);
    if (claims && !claims->empty()) shown.document["claims"] = claims_document(*claims);
    shown.document["iommufd"] = vfio::has_iommufd(*session.host);
  }
  return shown;
}

/// Redraws the lines that fit over the old ones. A line that is too wide is cut off: wrapped by the terminal
/// it would make the first lines scroll away.
std::string in_place(const std::string& text, std::size_t rows, bool first) {
  std::string out = first ? "\033[?7l\033[H\033[2J" : "\033[?7l\033[H";
  const std::vector<std::string> lines = words_between(text, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i + 2 >= rows && i + 1 < lines.size()) {
      out += "(a higher terminal shows the rest)\033[K\n";
      break;
    }
    out += lines[i] + "\033[K\n";
  }
  return out + "\033[J\033[?7h";
}

class Watching {
 public:
  Watching(const Session& session, EventLoop& loop) : session_(session), loop_(loop) {}

  ExitStatus run(const std::stop_token& stop) {
    watch_folders();  // before the first report, so that no change is missed
    if (auto uevents = vfio::Uevents::open()) {
      uevents_.emplace(std::move(*uevents));
      loop_.watch(uevents_->fd(), [this] {
        if (uevents_->take()) draw_soon();
      });
    } else {
      spdlog::warn("{}", uevents.error().message);
    }
    if (terminal()) watch_size();
    loop_.post([this] { draw(); });
    loop_.run(stop);
    return status_;
  }

 private:
  bool terminal() const { return ::isatty(::fileno(session_.out)) == 1; }

  /// A new width needs a new table. watch() blocks the signal for every thread.
  void watch_size() {
    sigset_t resized;
    sigemptyset(&resized);
    sigaddset(&resized, SIGWINCH);
    resized_ = UniqueFd(::signalfd(-1, &resized, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!resized_.valid()) return;
    loop_.watch(resized_.get(), [this] {
      signalfd_siginfo info{};
      while (::read(resized_.get(), &info, sizeof(info)) == sizeof(info)) {
      }
      drawn_.clear();
      draw_soon();
    });
  }

  /// Watches Ferry's own folders, or else the folder that will have them. True: a watch is new.
  bool watch_folders() {
    bool anew = false;
    for (const char* folder : {"run/ferry", "run/ferry/plugin", "run/ferry/dra", "run/ferry/hostd",
                               "run/ferry/hostd/moves", "run/ferry/stuck-writes", "run"}) {
      if (folders_.contains(folder) || (std::string_view(folder) == "run" && folders_.contains("run/ferry")))
        continue;
      auto watch = DirectoryWatch::open(*session_.host, folder, DirectoryWatch::Contents::written);
      if (!watch) continue;  // absent: its parent reports its arrival
      const int fd = watch->fd();
      folders_.emplace(folder, std::move(*watch));
      loop_.watch(fd, [this, at = fs::path(folder)] { changed(at); });
      anew = true;
    }
    return anew;
  }

  void changed(const fs::path& folder) {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return;
    bool news = folder != "run";
    for (const DirectoryEvent& event : found->second.read()) {
      // Other programs' files come and go in /run.
      news = news || event.name == "ferry";
      if (event.kind != DirectoryEvent::Kind::gone) continue;
      loop_.forget(found->second.fd());
      folders_.erase(found);
      news = true;
      break;
    }
    if (news) draw_soon();
  }

  void draw_soon() {
    if (std::exchange(soon_, true)) return;
    loop_.at(Clock::now() + kSettle, [this] { draw(); });
  }

  void draw() {
    soon_ = false;
    loop_.cancel(again_);
    // A change between the report and a new watch would be missed.
    if (watch_folders()) draw_soon();
    again_ = loop_.at(Clock::now() + kRescan, [this] { draw(); });
    const auto shown = report_of(session_);
    if (!shown) {
      if (complaint_ != shown.error().message) complain(shown.error());
      complaint_ = shown.error().message;
      return;
    }
    complaint_.clear();

    const std::string text = printed(session_, *shown);
    const bool first = !std::exchange(begun_, true);
    if (text == drawn_) return;
    drawn_ = text;
    std::string out;
    if (terminal()) {
      constexpr std::size_t kUsual = 24;
      out = in_place(text, text_output(session_).rows.value_or(kUsual), first);
    } else {
      out = first ? text : (session_.output == OutputFormat::yaml ? "---\n" : "\n") + text;
    }
    const bool written = std::fwrite(out.data(), 1, out.size(), session_.out) == out.size();
    if (std::fflush(session_.out) == 0 && written) return;
    status_ = ExitStatus::failed;
    loop_.finish();
  }

  const Session& session_;
  EventLoop& loop_;
  std::map<fs::path, DirectoryWatch> folders_;
  std::optional<vfio::Uevents> uevents_;
  UniqueFd resized_;
  std::string drawn_;      // the last block
  std::string complaint_;  // of the last report
  bool begun_ = false;
  bool soon_ = false;
  EventLoop::Timer again_;
  ExitStatus status_ = ExitStatus::done;
};

/// Prints the report, and again whenever it changes. It is made again when the kernel reports a device, when
/// a file of Ferry's changes, and periodically for device users, which no event announces. A terminal is
/// redrawn in place; elsewhere blocks follow each other. SIGINT or SIGTERM ends it: done. Each error of a
/// report is printed once and ends nothing. Failed: nothing can be waited for or printed.
ExitStatus watch(const Session& session) {
  sigset_t resized;
  sigemptyset(&resized);
  sigaddset(&resized, SIGWINCH);
  ::pthread_sigmask(SIG_BLOCK, &resized, nullptr);  // before any thread that would take the signal
  const StopOnSignal stop;
  auto loop = EventLoop::create();
  if (!loop) return complain(loop.error());
  return Watching(session, **loop).run(stop.token());
}

}  // namespace

ExitStatus status_verb(const Session& session, bool watches) {
  if (watches) return watch(session);
  const auto shown = report_of(session);
  return shown ? print(session, *shown) : complain(shown.error());
}

ExitStatus explain_verb(const Session& session, const std::string& word) {
  const auto inputs = read_explain_inputs(session);
  if (!inputs) return complain(inputs.error());
  const auto subject = find_subject(*inputs, word);
  if (!subject) return complain(subject.error());
  if (!is_text(session.output)) return print(session, {.document = to_json(*inputs, *subject), .text = {}});
  return print(session, {.document = {},
                         .text = explanation_text(explanation_of(*inputs, *subject), text_output(session)),
                         .tinted = true});
}

}  // namespace ferry::cli
