# SPDX-License-Identifier: Apache-2.0
"""What the headers in include/verbena/ declare, as far as Python needs it: structs, constants and
functions, written as C writes them.

tests/test_api.py has the C compiler compare every line of this with the headers, and knows by name
what of the headers is not here, and why (UNBOUND).
"""

import ctypes
import os
import re

VERSION = (0, 1, 0)

# Opaque: the library's own, only ever seen through a pointer.
OPAQUE = """
vb_fabric vb_cluster vb_lock_space vb_lock_client vb_lock_server vb_claim vb_db vb_table
vb_coordinator vb_db_server vb_values vb_names vb_ring
"""

STRUCTS = """
struct vb_fabric_params {
    const char *fabric; const char *name; const char *options; uint16_t nodes; uint64_t node_bytes;
    uint32_t endpoints; uint64_t seed; bool attach; bool attach_or_create; bool no_keeper;
    struct vb_cluster *cluster;
}
struct vb_cluster_params {
    uint32_t hosts; enum vb_cluster_role role; const char *meet; uint32_t rank; bool pmix;
    const char *bind; const char *auth_key_file; const char *config; uint64_t timeout_ns;
    uint64_t silence_ns; enum vb_cluster_seal seal;
}
struct vb_lock_space_params {
    const char *lock; const char *options; const char *name; uint64_t locks; uint16_t servers;
    uint64_t lease_ns; uint32_t drift_ppm; bool fencing; bool visible; uint32_t claims;
}
struct vb_grant {
    uint64_t lock; enum vb_mode mode; uint64_t token; uint64_t valid_until_ns;
    struct vb_claim *claim; uint64_t hold;
}
struct vb_names_params {
    uint64_t names; uint32_t bytes; uint32_t known;
}
struct vb_ring_params {
    uint32_t depth; uint32_t stack_bytes;
}
struct vb_completion {
    void *tag; int result;
}
struct vb_log_socket {
    int fd; uint64_t lost;
}
struct vb_holder {
    bool held; bool lapsed; enum vb_mode mode; uint32_t readers; uint16_t node; vb_peer client;
}
struct vb_db_params {
    const char *cc; const char *hybrid; const char *name; uint32_t coordinators;
    uint32_t items_max; uint32_t record_bytes_max; uint32_t bytes_max; uint64_t lease_ns;
    uint64_t wait_ns; uint64_t snapshot_lag_ns; uint32_t hot_from; bool no_recovery;
    bool no_doorbell; bool no_outstanding; bool passive_ack; uint32_t cache_entries;
    uint32_t copies;
}
struct vb_table_params {
    const char *name; uint32_t record_bytes; uint64_t records; enum vb_partition partition;
    bool ordered; uint32_t range_shift; uint64_t ranges;
}
struct vb_txn_params {
    enum vb_isolation isolation; bool read_only; uint64_t timeout_ns;
}
struct vb_txn_range {
    uint64_t least; uint64_t most; bool descending;
}
struct vb_txn_row {
    uint64_t key; const void *record;
}
struct vb_txn_key {
    struct vb_table *table; uint64_t key; bool write;
}
struct vb_values_params {
    const char *name; uint32_t bytes_max; uint32_t inline_bytes; uint32_t piece_bytes;
    uint64_t records; uint64_t pieces; enum vb_partition partition;
}
"""

FUNCTIONS = """
const char *vb_strerror(int err);
int vb_log_set(vb_log_fn fn, void *user);
int vb_log_levels(const char *levels);
const char *vb_version(void);
const char *vb_commit(void);

int vb_fabric_open(const struct vb_fabric_params *params, struct vb_fabric **out);
int vb_fabric_close(struct vb_fabric *fabric);
void vb_fabric_after_fork(struct vb_fabric *fabric);
void vb_poll(void);

int vb_cluster_open(const struct vb_cluster_params *params, struct vb_cluster **out);
void vb_cluster_close(struct vb_cluster *cluster);
uint32_t vb_cluster_rank(const struct vb_cluster *cluster);
uint32_t vb_cluster_hosts(const struct vb_cluster *cluster);
const char *vb_cluster_name(const struct vb_cluster *cluster, uint32_t rank);
bool vb_cluster_alive(const struct vb_cluster *cluster, uint32_t rank);
int vb_cluster_barrier(struct vb_cluster *cluster);

int vb_lock_space_open(struct vb_fabric *fabric, const struct vb_lock_space_params *params, struct vb_lock_space **out);
int vb_lock_space_close(struct vb_lock_space *space);
int vb_lock_server_start(struct vb_lock_space *space, uint16_t node, unsigned worker, unsigned workers, struct vb_lock_server **out);
void vb_lock_server_stop(struct vb_lock_server *server);
int vb_lock_server_thread_start(struct vb_lock_space *space, uint16_t node, struct vb_lock_server **out);
int vb_lock_client_open(struct vb_lock_space *space, uint16_t node, struct vb_lock_client **out);
void vb_lock_client_close(struct vb_lock_client *client);
int vb_lock_acquire(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode, uint64_t timeout_ns, struct vb_grant *out);
int vb_lock_acquire_for(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode, uint64_t hold_ns, uint64_t timeout_ns, struct vb_grant *out);
uint64_t vb_lock_hold_max_ns(const struct vb_lock_client *client, enum vb_mode mode);
int vb_lock_try(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode, struct vb_grant *out);
int vb_lock_convert(struct vb_lock_client *client, struct vb_grant *grant, enum vb_mode mode, uint64_t timeout_ns);
int vb_lock_renew(struct vb_lock_client *client, struct vb_grant *grant, uint64_t timeout_ns);
const char *vb_lock_mode_name(enum vb_mode mode);
int vb_lock_release(struct vb_lock_client *client, struct vb_grant *grant);
int vb_lock_release_all(struct vb_lock_client *client, struct vb_grant *grants, unsigned n);
void vb_lock_client_begin(struct vb_lock_client *client, uint64_t age_ns);
uint64_t vb_lock_client_age(const struct vb_lock_client *client);
vb_peer vb_lock_client_peer(const struct vb_lock_client *client);
int vb_lock_holder(struct vb_lock_client *client, uint64_t lock, struct vb_holder *out);
int vb_lock_acquire_path(struct vb_lock_client *client, const uint64_t *path, unsigned n, enum vb_mode mode, uint64_t timeout_ns, struct vb_grant *grants);
uint64_t vb_lock_now(const struct vb_lock_client *client);
bool vb_lock_valid(const struct vb_lock_client *client, const struct vb_grant *grant);
enum vb_outcome vb_lock_outcome(int err);

int vb_names_open(struct vb_lock_space *space, const struct vb_names_params *params, struct vb_names **out);
void vb_names_close(struct vb_names *names);
int vb_names_lock(struct vb_names *names, struct vb_lock_client *client, const void *name, size_t bytes, uint64_t *lock);
int vb_names_find(struct vb_names *names, struct vb_lock_client *client, const void *name, size_t bytes, uint64_t *lock);
int vb_names_of(struct vb_names *names, struct vb_lock_client *client, uint64_t lock, void *name, size_t room, size_t *bytes);

int vb_ring_open(const struct vb_ring_params *params, struct vb_ring **out);
int vb_ring_close(struct vb_ring *ring);
int vb_lock_acquire_start(struct vb_ring *ring, struct vb_lock_client *client, uint64_t lock, enum vb_mode mode, uint64_t timeout_ns, struct vb_grant *out, void *tag, uint64_t *id);
int vb_lock_release_start(struct vb_ring *ring, struct vb_lock_client *client, struct vb_grant *grant, void *tag, uint64_t *id);
int vb_lock_keep_start(struct vb_ring *ring, struct vb_lock_client *client, struct vb_grant *grant, void *tag, uint64_t *id);
int vb_ring_cancel(struct vb_ring *ring, uint64_t id);
int vb_ring_reap(struct vb_ring *ring, struct vb_completion *done, unsigned most);
int vb_ring_wait(struct vb_ring *ring, uint64_t timeout_ns);
int vb_ring_fd(const struct vb_ring *ring);
int vb_ring_arm(struct vb_ring *ring);

uint64_t vb_table_node_bytes(const struct vb_db_params *db, const struct vb_table_params *table, uint16_t nodes);
uint64_t vb_db_node_bytes(const struct vb_db_params *db, uint16_t nodes);
int vb_db_open(struct vb_fabric *fabric, const struct vb_db_params *params, struct vb_db **out);
int vb_db_close(struct vb_db *db);
int vb_table_open(struct vb_db *db, const struct vb_table_params *params, struct vb_table **out);
uint16_t vb_table_node(const struct vb_table *table, uint64_t key);
uint32_t vb_table_record_bytes(const struct vb_table *table);
int vb_table_load(struct vb_table *table, uint64_t key, const void *record);
int vb_db_server_start(struct vb_db *db, uint16_t node, struct vb_db_server **out);
int vb_db_server_thread_start(struct vb_db *db, uint16_t node, struct vb_db_server **out);
void vb_db_server_stop(struct vb_db_server *server);
int vb_coordinator_open(struct vb_db *db, uint16_t node, struct vb_coordinator **out);
void vb_coordinator_close(struct vb_coordinator *me);
const char *vb_txn_cause_name(enum vb_txn_cause cause);
int vb_txn_begin(struct vb_coordinator *me);
int vb_txn_begin_with(struct vb_coordinator *me, const struct vb_txn_params *params);
int vb_txn_get(struct vb_coordinator *me, struct vb_table *table, uint64_t key, const void **out);
int vb_txn_update(struct vb_coordinator *me, struct vb_table *table, uint64_t key, void **out);
int vb_txn_read(struct vb_coordinator *me, struct vb_table *table, uint64_t key, void *record);
int vb_txn_write(struct vb_coordinator *me, struct vb_table *table, uint64_t key, const void *record);
int vb_txn_insert(struct vb_coordinator *me, struct vb_table *table, uint64_t key, const void *record);
int vb_txn_delete(struct vb_coordinator *me, struct vb_table *table, uint64_t key);
int vb_txn_scan(struct vb_coordinator *me, struct vb_table *table, const struct vb_txn_range *range, struct vb_txn_row *rows, unsigned room, unsigned *n);
int vb_txn_declare(struct vb_coordinator *me, const struct vb_txn_key *keys, unsigned n);
int vb_txn_commit(struct vb_coordinator *me);
void vb_txn_abort(struct vb_coordinator *me);
int vb_values_open(struct vb_db *db, const struct vb_values_params *params, struct vb_values **out);
void vb_values_close(struct vb_values *values);
int vb_values_get(struct vb_coordinator *me, struct vb_values *values, uint64_t key, void *buf, uint32_t room_bytes, uint32_t *bytes);
int vb_values_put(struct vb_coordinator *me, struct vb_values *values, uint64_t key, const void *value, uint32_t bytes);
int vb_values_remove(struct vb_coordinator *me, struct vb_values *values, uint64_t key);
enum vb_txn_cause vb_txn_cause(const struct vb_coordinator *me);
int vb_txn_error(const struct vb_coordinator *me);
int vb_db_recover(struct vb_coordinator *me, uint16_t node, uint64_t *freed);
"""

# Public, and not bound: the name and why.
UNBOUND = {
    "vb_log_send": "only its address is wanted, for vb_log_set: Log",
    "vb_allocator_set": "its functions are called by threads and on stacks that are no place for an interpreter",
    "vb_allocator": "of vb_allocator_set",
    "vb_log_fn": "a function's address: that of vb_log_send, or none. One in Python would run on stacks of"
    " 16 KiB, of coroutines: no place for an interpreter, its signal handlers and finalizers",
    "vb_log_message": "of vb_log_fn; in Python Message",
    "vb_txn_run": "an exception that comes between C and a body in Python (Ctrl-C) has no way"
    " through C, which would commit: Coordinator.run is the same loop in Python",
    "vb_txn_run_with": "as vb_txn_run; Coordinator.run has its parameters",
    "vb_txn_body": "of vb_txn_run",
    "vb_txn_prefix": "inline in C; verbena.prefix does the same",
    "vb_host": "a thread in Python has clients of its own; one that waits lets others run",
    "vb_host_params": "of vb_host",
    "vb_host_open": "of vb_host",
    "vb_host_close": "of vb_host",
    "vb_host_call": "as vb_ring_call",
    "vb_host_client_open": "of vb_host",
    "vb_host_ring_open": "of vb_host",
    "vb_addr": "no public call takes or gives an address",
    "vb_addr_make": "of vb_addr",
    "vb_addr_node": "of vb_addr",
    "vb_addr_offset": "of vb_addr",
    "vb_peer": "a number in Python: LockClient.peer and Holder.client",
    "vb_peer_make": "of vb_peer",
    "vb_peer_node": "of vb_peer",
    "vb_peer_client": "of vb_peer",
    "VB_ADDR_OFFSET_BITS": "of vb_addr",
    "VB_NODES_MAX": "of vb_addr",
    "VB_PEER_NONE": "of vb_peer",
    "VB_PEER_CLIENT_BITS": "of vb_peer",
    "vb_names_each": "an exception that comes in a function in Python (Ctrl-C) has no way through C:"
    " Names.each asks for one name after the other",
    "vb_names_fn": "of vb_names_each",
    "vb_ring_call": "its function runs on a coroutine's stack, and on the keeper's thread: as vb_log_fn",
    "vb_ring_fn": "of vb_ring_call",
    "vb_fabric_each": "has no method in Python yet",
    "vb_lock_space_remove": "has no method in Python yet",
    "vb_named": "of vb_fabric_each",
    "vb_named_fn": "of vb_fabric_each",
    "VB_NAMED_LOCKS": "of vb_fabric_each",
    "VB_NAMED_NAMES": "of vb_fabric_each",
    "VB_NAMED_DB": "of vb_fabric_each",
    "VB_NAMED_PART": "of vb_fabric_each",
    "vb_provider": "a fabric of the program's own is its functions, called by verb: not in Python",
    "vb_provider_verb": "of vb_provider",
    "vb_provider_end": "of vb_provider",
    "vb_provider_endpoint": "of vb_provider",
    "vb_provider_broken": "of vb_provider",
    "vb_fabric_provide": "of vb_provider",
    "vb_provider_check": "of vb_provider",
    "VB_PROVIDER_VERB_BYTES": "of vb_provider",
    "VB_PROVIDER_MESSAGE_BYTES": "of vb_provider",
    "VB_PROVIDER_READ": "of vb_provider",
    "VB_PROVIDER_WRITE": "of vb_provider",
    "VB_PROVIDER_CAS": "of vb_provider",
    "VB_PROVIDER_FAA": "of vb_provider",
    "VB_PROVIDER_SEND": "of vb_provider",
}

ERR_BASE = 4096
FOREVER_NS = 2**64 - 1

# Enumerators and macros with the values that Python goes by.
CONSTANTS = {
    "VB_VERSION_MAJOR": VERSION[0],
    "VB_VERSION_MINOR": VERSION[1],
    "VB_VERSION_PATCH": VERSION[2],
    "VB_ERR_BASE": ERR_BASE,
    "VB_EUNKNOWN": ERR_BASE,
    "VB_ELOST": ERR_BASE + 1,
    "VB_EPEERGONE": ERR_BASE + 2,
    "VB_EACCESS": ERR_BASE + 3,
    "VB_ETOOLATE": ERR_BASE + 4,
    "VB_EFOREIGN": ERR_BASE + 5,
    "VB_FOREVER_NS": FOREVER_NS,
    "VB_CLAIMS_MAX": 64,
    "VB_PATH_MAX": 64,
    "VB_NAME_MAX": 255,
    "VB_STARTED": 1,
    "VB_LOG_OFF": 0,
    "VB_LOG_ERROR": 1,
    "VB_LOG_WARN": 2,
    "VB_LOG_INFO": 3,
    "VB_LOG_DEBUG": 4,
    "VB_LOG_TRACE": 5,
    "VB_SHARED": 0,
    "VB_EXCLUSIVE": 1,
    "VB_UPDATE": 2,
    "VB_INTENT_SHARED": 3,
    "VB_INTENT_EXCLUSIVE": 4,
    "VB_SHARED_INTENT_EXCLUSIVE": 5,
    "VB_MODES": 6,
    "VB_GRANTED": 0,
    "VB_NOT_GRANTED": 1,
    "VB_UNKNOWN": 2,
    "VB_CLUSTER_HOSTS_MAX": 1024,
    "VB_CLUSTER_PORT": 7531,
    "VB_CLUSTER_ANY_RANK": 2**32 - 1,
    "VB_CLUSTER_AUTO": 0,
    "VB_CLUSTER_ROOT": 1,
    "VB_CLUSTER_MEMBER": 2,
    "VB_CLUSTER_SEAL_AUTO": 0,
    "VB_CLUSTER_SEAL_ALWAYS": 1,
    "VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK": 2,
    "VB_TABLES_MAX": 24,
    "VB_RECORD_BYTES_MAX": 65024,
    "VB_TXN_ITEMS_MAX": 4096,
    "VB_PARTITION_MOD": 0,
    "VB_PARTITION_HASH": 1,
    "VB_PARTITION_TOP16": 2,
    "VB_TXN_COMMITTED": 0,
    "VB_TXN_USER": 1,
    "VB_TXN_LOCKED": 2,
    "VB_TXN_DIED": 3,
    "VB_TXN_WOUNDED": 4,
    "VB_TXN_CHANGED": 5,
    "VB_TXN_LEASE": 6,
    "VB_TXN_SLOTS": 7,
    "VB_TXN_RECOVERED": 8,
    "VB_TXN_TIMEOUT": 9,
    "VB_TXN_FABRIC": 10,
    "VB_TXN_MISUSE": 11,
    "VB_TXN_REFUSED": 12,
    "VB_TXN_CASCADE": 13,
    "VB_TXN_CAUSES": 14,
    "VB_SERIALIZABLE": 0,
    "VB_REPEATABLE_READ": 1,
    "VB_READ_COMMITTED": 2,
    "VB_SNAPSHOT": 3,
    "VB_ISOLATIONS": 4,
}

# ---- from C's words to ctypes ----

SCALARS = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "size_t": ctypes.c_size_t,
    "bool": ctypes.c_bool,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "vb_peer": ctypes.c_uint64,
    "vb_log_fn": ctypes.c_void_p,
    "void": None,
}
structs = {name: type(name, (ctypes.Structure,), {}) for name in OPAQUE.split()}


def parse_declaration(text):
    """The type and the name of one declaration: ('const char *', 'name')."""
    kind, name = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", text, re.S).groups()
    return kind.strip(), name


def ctype(kind):
    """The ctypes type for a type in C's words."""
    words = kind.replace("*", " * ").replace("const ", "").split()
    stars = words.count("*")
    base = " ".join(words[: len(words) - stars])
    if base == "char" and stars == 1:
        return ctypes.c_char_p
    if base == "void" and stars > 0:
        found, stars = ctypes.c_void_p, stars - 1
    elif base.startswith("struct "):
        found = structs[base[len("struct ") :]]
    elif base.startswith("enum "):
        found = ctypes.c_uint
    else:
        found = SCALARS[base]
    for _ in range(stars):
        found = ctypes.POINTER(found)
    return found


def parse_structs(text):
    """{name: [(type, field), ...]} of STRUCTS."""
    return {
        name: [parse_declaration(field) for field in body.split(";") if field.strip()]
        for name, body in re.findall(r"struct (\w+) \{(.*?)\}", text, re.S)
    }


def parse_functions(text):
    """{name: (result type, [(argument's type, its name), ...])} of FUNCTIONS."""
    found = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        head, arguments = re.fullmatch(r"(.*)\((.*)\);", line).groups()
        kind, name = parse_declaration(head)
        listed = [] if arguments == "void" else arguments.split(",")
        found[name] = (kind, [parse_declaration(argument) for argument in listed])
    return found


for _name, _fields in parse_structs(STRUCTS).items():
    structs[_name] = type(
        _name, (ctypes.Structure,), {"_fields_": [(field, ctype(kind)) for kind, field in _fields]}
    )


def _load():
    """The library: that of $VERBENA_LIBRARY, or the one that the system finds."""
    path = os.environ.get("VERBENA_LIBRARY") or "libverbena.so.0"
    try:
        # CDLL: without the GIL while a call is under way.
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"{error}; install libverbena, or set VERBENA_LIBRARY to its path"
        ) from error
    library.vb_version.restype = ctypes.c_char_p
    version = library.vb_version().decode()
    if not version.startswith("%d.%d." % VERSION[:2]):
        raise ImportError(
            f"{path} is version {version}, and this package is for {VERSION[0]}.{VERSION[1]}"
        )
    for name, (kind, arguments) in parse_functions(FUNCTIONS).items():
        function = getattr(library, name)
        function.restype = ctype(kind)
        function.argtypes = [ctype(argument) for argument, _ in arguments]
    return library


lib = _load()
