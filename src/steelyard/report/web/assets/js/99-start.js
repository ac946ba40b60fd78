// Last: every page is registered, so the address can be answered.
"use strict";

window.Steelyard.start();
