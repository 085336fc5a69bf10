// SPDX-License-Identifier: Apache-2.0
// Prepares and unprepares ResourceClaims for the kubelet.
//
// A claim that is prepared passes these steps. Each may be repeated, and a process that was killed between
// two of them goes on from the checkpoint.
//   1. read the claim from the API server, and check that its devices are free; a new claim for extended
//      resources also needs the names of its DeviceClasses
//   2. connect to hostd: while hostd is away, nothing is recorded
//   3. record the intent in the checkpoint (checkpoint.h)
//   4. ask hostd, which prepares all devices of the claim or none; if it refuses, have it undo the claim and
//      remove the record. The record of a claim that was prepared before stays, as an intent
//   5. record that it is prepared, and answer the kubelet
// Unprepare asks hostd to undo the claim, and removes its record. It needs no API server. hostd writes and
// removes the files of a claim (api/claim_files.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "api/claim_request.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "dra/checkpoint.h"
#include "dra/claim.h"
#include "dra/slices/node_model.h"
#include "hostfs/host_fs.h"

namespace ferry::dra {

/// Reads ResourceClaims and their DeviceClasses from the API server. Belongs to the loop's thread.
class ClaimReader : Pinned {
 public:
  using Done = std::function<void(Result<nlohmann::json>)>;

  virtual ~ClaimReader() = default;

  /// Reads the claim of this namespace and name, whatever its UID is. `done` runs once, in the loop; it may
  /// run before read() returns. Errc::not_found: there is no such claim. Errc::unreachable: the API server
  /// does not answer. Each error's message names the object.
  virtual void read(const ClaimKey& key, Done done) = 0;
  /// Reads a DeviceClass, in the same way.
  virtual void read_class(const std::string& name, Done done) = 0;
};

/// The node's GPUs, as its ResourceSlices are made of them. Belongs to the loop's thread.
class ModelSource : Pinned {
 public:
  virtual ~ModelSource() = default;

  /// The present model. ClaimDriver does not read `held`, since it has the checkpoint. Errors: the GPUs are
  /// not known yet.
  virtual Result<NodeModel> node() const = 0;
};

/// Messages about claims for people. Belongs to the loop's thread.
class ClaimEvents : Pinned {
 public:
  virtual ~ClaimEvents() = default;

  /// The claim could not be prepared, or not be unprepared. The kubelet repeats a failed request every few
  /// seconds, and each failure comes here: the receiver passes repeats over, but not for ever, since events
  /// expire.
  virtual void failed(const ClaimKey& claim, api::ClaimAction action, const Error& error) = 0;
  /// The claim can be prepared, but a program cannot use it (AllocatedClaim::warnings). Once for each claim.
  virtual void warned(const ClaimKey& claim, const std::string& sentence) = 0;
  /// Another program has taken a device of the prepared claim away. Once for each loss, and once more after
  /// each start. The receiver may pass over a repeat within some minutes.
  virtual void lost(const ClaimKey& claim, const std::string& sentence) = 0;
};

/// A device in the answer to the kubelet.
struct DeviceAnswer {
  std::string request;  ///< without the alternative
  std::string pool;
  std::string device;
  std::vector<std::string> cdi_ids;  ///< the first device of a request has the request's metadata, too
  bool operator==(const DeviceAnswer&) const = default;
};

/// The answer about one claim of a request.
struct ClaimAnswer {
  std::string uid;
  Result<std::vector<DeviceAnswer>> devices;  ///< none after unprepare
};

/// Belongs to the loop's thread. A node has one at a time, since it alone writes the checkpoint: the caller
/// holds an InstanceLock.
class ClaimDriver : Pinned {
 public:
  /// All must outlive the driver.
  struct Parts {
    EventLoop& loop;
    HostFs& host;
    ClaimReader& reader;
    const ModelSource& node;
    ClaimEvents& events;
    /// The checkpoint has changed, so the slices may have to. Must not destroy the driver.
    std::function<void()> changed;
  };

  struct Settings {
    std::string node;  ///< the Node's name
    /// The kubelet ends a call after 45 s and loses the answers about all of its claims. A claim that takes
    /// longer than this is answered with the error that its preparation goes on.
    std::chrono::milliseconds answer_within = std::chrono::seconds(30);
    /// The time until a request to hostd without an answer is given up.
    std::chrono::milliseconds hostd_limit = std::chrono::minutes(10);
  };

  /// Reads the checkpoint, without the claims of another boot. Errors: the checkpoint cannot be read, or is
  /// malformed: then it is not known which GPUs claims have.
  static Result<std::unique_ptr<ClaimDriver>> open(const Parts& parts, Settings settings);
  /// Requests that are not answered yet stay so. hostd finishes its work, and the next process asks again.
  virtual ~ClaimDriver() = default;

  /// Runs once, in the loop, with one answer for each UID of the request. It may run before the request's
  /// function returns.
  using Done = std::function<void(std::vector<ClaimAnswer>)>;

  /// The claims are independent of each other. The driver prepares 16 at a time and undoes 16; further ones
  /// wait. A claim that is prepared already gets the same answer again, also while the API server does not
  /// answer or refuses to show it, and if hostd is away, ends, cannot have the node's lock, or has not
  /// answered in `hostd_limit`. If another program has removed its vGPU, hostd makes the vGPU again. If hostd
  /// refuses that, the claim gets no answer before hostd has prepared it. A claim whose undo has begun and
  /// failed, or that has the devices of a former allocation, is undone first, and the kubelet gets an error.
  virtual void prepare(const std::vector<ClaimKey>& claims, Done done) = 0;
  /// hostd is asked about an unknown claim too, since its record may have the claim. Without an answer of
  /// hostd, an unknown claim succeeds. Namespace and name are used for messages alone.
  virtual void unprepare(const std::vector<ClaimKey>& claims, Done done) = 0;

  /// Undoes claims of the checkpoint whose UIDs are not in `kept`, once the API server has confirmed that
  /// they are no more, or that they are allocated elsewhere or not at all; and those whose undo has begun,
  /// which needs no confirmation. A kubelet that has lost its own records does not ask for that. Claims that
  /// hostd cannot undo yet stay for the next call.
  virtual void unprepare_all_but(const std::set<std::string>& kept) = 0;

  /// The claims that have devices now.
  virtual const Checkpoint& checkpoint() const = 0;
};

}  // namespace ferry::dra
