#!/bin/sh
# Installs packages of npm below build/: those of the web pages, of the hosts in C and Node, or KaTeX
# for the site. tools/node_packages.sh web
set -eu
install() {
  mkdir -p "build/$1"
  folder="build/$1"
  shift
  (cd "$folder" && npm install --silent --no-fund --no-audit --ignore-scripts --prefix . "$@")
}
case "${1:-}" in
  web) install web onnxruntime-web@1.30 katex@0.19 playwright-core@1.65 ;;
  hosts)
    install hosts onnxruntime-node@1.30
    mkdir -p build/hosts/include
    cd build/hosts
    # The headers of onnxruntime's C API are those of a package for Unity: 150 MB, once. Its library
    # is that of the wheel.
    headers=com.github.asus4.onnxruntime
    if [ ! -f include/onnxruntime_c_api.h ]; then
      npm pack --silent "$headers@0.4.9" >/dev/null
      tar -xzf "$headers-0.4.9.tgz" -C include --strip-components=7 \
        "package/Plugins/iOS~/onnxruntime.xcframework/ios-arm64/onnxruntime.framework/Headers"
      rm "$headers-0.4.9.tgz"
    fi ;;
  site)
    if command -v npm >/dev/null; then install web katex@0.19
    else echo "no npm: the site loads KaTeX from unpkg.com"; fi ;;
  *)
    echo "tools/node_packages.sh web, hosts or site; got '${1:-}'" >&2
    exit 2 ;;
esac
