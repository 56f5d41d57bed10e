/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key file for tests that stands in no directory: nothing is left of it, however the test ends, also if it is
 * killed.  Its name is good for the children of who has made it, as long as that one lives and has not closed it.
 */
#ifndef TEST_KEY_FILE_H
#define TEST_KEY_FILE_H

#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_FILE_NAME 64

/* Its descriptor, to be closed by who has made it; -1. */
static inline int key_file(const void *bytes, size_t n, char name[KEY_FILE_NAME])
{
	int fd = memfd_create("key", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	if (fchmod(fd, 0600) != 0 || write(fd, bytes, n) != (ssize_t)n) {
		close(fd);
		return -1;
	}
	snprintf(name, KEY_FILE_NAME, "/proc/%d/fd/%d", (int)getpid(), fd);
	return fd;
}

#endif
