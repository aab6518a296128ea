"""Static files under names that hold their hash, module imports included.

Without rewriting the imports a hashed `main.js` would still load the un-hashed `./socket.js`, and an upgrade
would mix old and new modules in a browser's cache.
"""

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage


class ModuleManifestStorage(ManifestStaticFilesStorage):
    support_js_module_import_aggregation = True
