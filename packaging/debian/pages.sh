# Run by scripts/test-package in a clean Debian, as the guests' scenarios are: what each page has for a machine with the service (`in=debian`), as it stands there, in a folder like a built source tree.
. /scenarios/units.sh
patience=600
export DEBIAN_FRONTEND=noninteractive
answers() { bash -c 'exec 3<>/dev/tcp/127.0.0.1/9844 && printf "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" >&3 && grep -q ok <&3' 2>/dev/null; }

# A service that pages name and ask.
systemctl start postgresql@15-main
await runuser -u postgres -- pg_isready --quiet

for commands in /pages/*/commands; do
    folder=${commands%/*} page=${folder#/pages/}
    case $page in
        install | daemon) ;; # they install it themselves
        *) dpkg -i /packages/old/cotenant_*.deb >/dev/null ;;
    esac
    cp -r "$folder/." /tree
    (cd /tree && bash -euxo pipefail commands) || fail "$page: the last command above"
    case $page in
        daemon) [ ! -e /usr/bin/cotenant ] && no_cotenant && is cotenant LoadState not-found || fail "$page: something is left" ;;
        monitor) await answers ;;
        operate) says enforce || fail "$page: it does not enforce" ;;
    esac
    echo "$page: ok"
    dpkg -P cotenant >/dev/null 2>&1 || true
    rm -rf /etc/systemd/system/cotenant*
    systemctl daemon-reload
done
