/* SPDX-License-Identifier: Apache-2.0 */
/* The key file; see auth.h. */
#define VB_LOG_ROOM "cluster"
#include "cluster/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static const char key_label[] = "verbena cluster key\n";

static void start_sodium(void)
{
	vb_assert(sodium_init() >= 0); /* idempotent; it fails only without a source of chance */
}

void auth_draw(void *to, size_t bytes)
{
	start_sodium();
	randombytes_buf(to, bytes);
}

uint32_t auth_draw_below(uint32_t n)
{
	start_sodium();
	return randombytes_uniform(n);
}

void auth_forget(void *secret, size_t bytes)
{
	sodium_memzero(secret, bytes);
}

void auth_key_of(struct vb_cluster_key *key, const void *data, size_t bytes)
{
	crypto_hash_sha256_state h;

	_Static_assert(sizeof(key->bytes) == crypto_hash_sha256_BYTES, "the key is a hash");
	start_sodium();
	crypto_hash_sha256_init(&h);
	crypto_hash_sha256_update(&h, (const uint8_t *)key_label, sizeof(key_label) - 1);
	crypto_hash_sha256_update(&h, data, bytes);
	crypto_hash_sha256_final(&h, key->bytes);
	sodium_memzero(&h, sizeof(h));
}

static int check_file(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return vb_fail(-EACCES, "key file %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return vb_fail(-EACCES, "key file %s is no regular file", path);
	if (st.st_uid != geteuid())
		return vb_fail(
			-EACCES,
			"key file %s belongs to user %u, and this process is of user %u: take "
			"a file of your own",
			path, (unsigned)st.st_uid, (unsigned)geteuid());
	if ((st.st_mode & 077) != 0)
		return vb_fail(-EACCES,
			       "key file %s can be used by others (mode %03o): chmod 600 it, and "
			       "make a new key if others may have seen it",
			       path, (unsigned)st.st_mode & 0777u);
	if (st.st_size < AUTH_FILE_MIN || st.st_size > AUTH_FILE_MAX)
		return vb_fail(-EACCES,
			       "key file %s has %lld bytes, %d to %d are allowed: head -c 32 "
			       "/dev/urandom > KEYFILE makes a good one",
			       path, (long long)st.st_size, AUTH_FILE_MIN, AUTH_FILE_MAX);
	return 0;
}

/* Zeros from /dev/zero, a hole, a letter held down: no key, however long. */
static bool is_one_byte(const uint8_t *data, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (data[i] != data[0])
			return false;
	return true;
}

int auth_key_load(struct vb_cluster_key *key, const char *path)
{
	uint8_t data[AUTH_FILE_MAX + 1];
	size_t n = 0;
	ssize_t got;
	int fd, err;

	if (path == NULL) {
		auth_key_of(key, "", 0);
		return 0;
	}
	/* Non-blocking: a pipe in its place must not hold us up. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return vb_fail(-EACCES,
			       "key file %s: %s; head -c 32 /dev/urandom > KEYFILE and chmod 600 "
			       "KEYFILE make one, which all processes share",
			       path, strerror(errno));
	err = check_file(fd, path);
	while (err == 0 && n < sizeof(data) && (got = read(fd, data + n, sizeof(data) - n)) != 0) {
		if (got < 0 && errno != EINTR)
			err = vb_fail(-EACCES, "key file %s: %s", path, strerror(errno));
		else if (got > 0)
			n += (size_t)got;
	}
	if (err == 0 && (n < AUTH_FILE_MIN || n > AUTH_FILE_MAX))
		err = vb_fail(-EACCES, "key file %s changed while it was read", path);
	if (err == 0 && is_one_byte(data, n))
		err = vb_fail(-EACCES,
			      "key file %s has one byte over and over, which anybody may guess: "
			      "head -c 32 "
			      "/dev/urandom > KEYFILE makes a good one",
			      path);
	if (err == 0)
		auth_key_of(key, data, n);
	sodium_memzero(data, sizeof(data));
	close(fd);
	return err;
}

int vb_cluster_key_make(struct vb_cluster_key *key, const char *path)
{
	if (path != NULL)
		return auth_key_load(key, path);
	auth_draw(key->bytes, sizeof(key->bytes));
	return 0;
}

uint64_t auth_number(const uint8_t secret[CL_SECRET], const char purpose[8])
{
	uint8_t key[crypto_kdf_BYTES_MIN];
	uint64_t number;

	_Static_assert(crypto_kdf_KEYBYTES == CL_SECRET && crypto_kdf_CONTEXTBYTES == 8,
		       "the run's secret is a key, and a purpose its context");
	start_sodium();
	vb_assert(crypto_kdf_derive_from_key(key, sizeof(key), 1, purpose, secret) == 0);
	memcpy(&number, key, sizeof(number));
	return number;
}

void auth_psk(const struct vb_cluster_key *key, uint8_t psk[VB_SEAL_KEY])
{
	_Static_assert(crypto_kdf_KEYBYTES == sizeof(key->bytes), "the key makes others");
	start_sodium();
	vb_assert(crypto_kdf_derive_from_key(psk, VB_SEAL_KEY, 1, "vb_clus2", key->bytes) == 0);
}
