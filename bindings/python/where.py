# SPDX-License-Identifier: Apache-2.0
"""usage: where.py PREFIX DIRECTORY

The directory below the prefix in which this Python looks for packages, else DIRECTORY.
"""

import os
import site
import sys

prefix, otherwise = sys.argv[1], sys.argv[2].rstrip("/")
own = os.path.join(prefix, "lib", "python{}.{}".format(*sys.version_info))
places = [otherwise, os.path.join(own, "dist-packages"), os.path.join(own, "site-packages")]
# Beside those of now, those that it will look into once they are there.
looks = sys.path + site.getsitepackages()
print(next((place for place in places if place in looks), otherwise))
