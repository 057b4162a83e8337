#!/bin/sh
# Unpack ispc from Debian's unstable distribution into a folder of its own; nothing is installed, no root is needed.
#
#     sh benchmarks/simd/get_ispc.sh FOLDER
#
# apt reads a list of packages that only this folder has, fetches ispc and the libraries that it was linked with (newer
# ones than this system's, its C library among them), `dpkg -x` unpacks them, and FOLDER/ispc starts the program by the
# loader that came with them. `python -m benchmarks.simd --ispc FOLDER/ispc` uses it.
set -eu
mkdir -p "${1:?a folder}"
folder=$(cd "$1" && pwd)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/root"
echo "deb [signed-by=$keys] http://deb.debian.org/debian sid main" >"$folder/sources.list"
apt() {
    "$@" -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State="$folder/state" -o Dir::Cache="$folder/cache" -o Dir::State::status=/var/lib/dpkg/status
}
apt apt-get -q update
cd "$folder/cache"
apt apt-get -q download ispc libc6 libgcc-s1 libstdc++6 libllvm21 libffi8 libedit2 libbsd0 libmd0 libtinfo6 \
    zlib1g libzstd1 libxml2-16 libz3-4
for package in ./*.deb; do dpkg -x "$package" "$folder/root"; done
cat >"$folder/ispc" <<EOF
#!/bin/sh
exec "$folder/root/usr/lib64/ld-linux-x86-64.so.2" \
    --library-path "$folder/root/usr/lib/x86_64-linux-gnu:$folder/root/lib/x86_64-linux-gnu" \
    "$folder/root/usr/bin/ispc" "\$@"
EOF
chmod +x "$folder/ispc"
"$folder/ispc" --version
